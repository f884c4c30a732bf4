"""Where the experts of a layer lie: in the device's memory, or in host memory that its kernels read over the link."""

import mmap
import weakref
from dataclasses import dataclass, replace
from math import prod

import torch
from torch import Tensor

from services.common.model.fields.errors import ModelError
from services.common.model.spec import Experts, ModelSpec

_UNIT, _UNIT_CODES = 8, 16
"""Numbers, or codes of a byte, that places are a multiple of: what a thread reads at once."""


@dataclass(frozen=True, eq=False)
class ColdExperts:
    """Both products [places, F, D] of a layer's experts, on the device and in host memory, which is locked for a GPU.

    `place_E` is where each expert lies: places of the device come first. `at_2E`, on the device, says the same of both
    products, in multiples of eight numbers, or sixteen codes, behind the device's.
    """

    device: tuple[Tensor, Tensor]
    host: tuple[Tensor, Tensor]
    at_2E: Tensor
    place_E: list[int]

    @property
    def resident(self) -> int:
        """Experts that the device holds."""
        return len(self.device[0])

    @property
    def nbytes(self) -> int:
        """Bytes of host memory."""
        return sum(stack.nbytes for stack in self.host)

    def is_cold(self, expert: int) -> bool:
        """Whether an expert lies in host memory."""
        return self.place_E[expert] >= self.resident

    def exchange(self, cold: int, resident: int, rooms: tuple[Tensor, Tensor]) -> None:
        """Let a cold expert and a resident one change places, in the order of the stream; the host waits for nothing.

        `rooms` hold both products of one expert on the device.
        """
        above, below = self.place_E[resident], self.place_E[cold] - self.resident
        assert above < self.resident and below >= 0, "one of the device changes places with one of the host"
        for stack, others, room in zip(self.device, self.host, rooms, strict=True):
            room.copy_(stack[above])
            stack[above].copy_(others[below], non_blocking=True)
            others[below].copy_(room, non_blocking=True)
        moved_2 = self.at_2E[:, cold].clone()
        self.at_2E[:, cold] = self.at_2E[:, resident]
        self.at_2E[:, resident] = moved_2
        self.place_E[cold], self.place_E[resident] = self.place_E[resident], self.place_E[cold]


def held(spec: ModelSpec, expert_bytes: int, itemsize: int) -> ModelSpec:
    """Return a model whose device holds experts of so many bytes, as many of each layer.

    Raises:
        ModelError: the model has no experts, or one of each layer takes more.
    """
    own = [layer.ffn for layer in spec.layers if isinstance(layer.ffn, Experts)]
    if not own:
        raise ModelError("expert_bytes: the model has no experts that may lie in host memory")
    each = sum(3 * spec.hidden_size * ffn.inner * itemsize for ffn in own)
    resident = expert_bytes // each
    if not resident:
        raise ModelError(f"expert_bytes: {expert_bytes} are too few, one expert of each layer takes {each}")
    layers = tuple(
        replace(layer, ffn=replace(layer.ffn, resident=resident if resident < layer.ffn.count else 0))
        if isinstance(layer.ffn, Experts)
        else layer
        for layer in spec.layers
    )
    return replace(spec, layers=layers)


def expert_elements(spec: ModelSpec) -> int:
    """Return how many numbers the experts have that a file may keep as codes, or that may lie in host memory."""
    own = [layer.ffn for layer in spec.layers if isinstance(layer.ffn, Experts)]
    return sum(3 * spec.hidden_size * ffn.inner * ffn.count for ffn in own)


def new_experts(
    count: int, resident: int, shapes: tuple[tuple[int, int], tuple[int, int]], like: Tensor
) -> tuple[tuple[Tensor, Tensor], ColdExperts | None]:
    """Return unwritten memory for both products of `resident` experts on the device of `like`, and for the others.

    Raises:
        ModelError: no places of products of such a shape are whole multiples of what a thread reads at once.
    """
    first, second = (like.new_empty((resident, *shape)) for shape in shapes)
    if resident == count:
        return (first, second), None
    unit = _unit(like.dtype)
    if any(prod(shape) % unit for shape in shapes):
        raise ModelError(f"experts of {shapes} cannot lie in host memory: they are no multiple of {unit} numbers")
    hosts = [_host_stack((count - resident, *shape), like.dtype) for shape in shapes]
    at_2E = torch.stack([_places(stack, host) for stack, host in zip((first, second), hosts, strict=True)])
    cold = ColdExperts((first, second), (hosts[0], hosts[1]), at_2E.to(like.device), list(range(count)))
    if like.device.type == "cuda":
        _lock(cold)
    return (first, second), cold


def stack_of(index: int, stack: Tensor, host: Tensor | None) -> Tensor:
    """Return the memory of one expert by its number, before any exchange."""
    if index < len(stack):
        return stack[index]
    assert host is not None, "what the device does not hold lies in host memory"
    return host[index - len(stack)]


def _unit(dtype: torch.dtype) -> int:
    return _UNIT_CODES if dtype == torch.uint8 else _UNIT


def _places(stack: Tensor, host: Tensor) -> Tensor:
    """Return where experts lie behind the stack, in units."""
    unit, size = _unit(stack.dtype) * stack.itemsize, stack[0].nbytes
    between = host.data_ptr() - stack.data_ptr()
    assert between % unit == 0 and size % unit == 0, "memory is aligned to more than a unit"
    near = [place * size for place in range(len(stack))]
    return torch.tensor([byte // unit for byte in (*near, *(between + place * size for place in range(len(host))))])


def _host_stack(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return whole pages of host memory, which nothing else shares: those of a stack are locked alone."""
    size = prod(shape) * dtype.itemsize
    pages = torch.empty(size + 2 * mmap.PAGESIZE, dtype=torch.uint8)
    first = -pages.data_ptr() % mmap.PAGESIZE
    return pages[first : first + size].view(dtype).view(shape)


def _lock(cold: ColdExperts) -> None:
    """Lock host memory in place until the experts are gone: torch's own allocator would take up to twice as much."""
    cudart = torch.cuda.cudart()
    for host in cold.host:
        size = -(-host.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        torch.cuda.check_error(int(cudart.cudaHostRegister(host.data_ptr(), size, 0)))
        weakref.finalize(cold, _unlock, host).atexit = False


def _unlock(host: Tensor) -> None:
    """Give pages back to the system before `host`, which is held until then, is freed."""
    torch.cuda.synchronize()
    torch.cuda.check_error(int(torch.cuda.cudart().cudaHostUnregister(host.data_ptr())))
