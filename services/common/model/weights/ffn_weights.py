"""Weights of feed-forward parts as blocks take them, and how they are read in Hugging Face's common layouts."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from services.common.kernels.experts.scales import ExpertScales, are_taken
from services.common.kernels.linear.packed_weight import Codes, dealt
from services.common.kernels.linear.weight import Weight
from services.common.model.fields.errors import ModelError
from services.common.model.spec import Beside, Dense, Experts
from services.common.model.weights.expert_memory import ColdExperts, new_experts, stack_of

STACKED = "mlp.experts.gate_up_proj"
"""In a block that has it, the experts of each product are one tensor; otherwise each has tensors of its own."""
_DOWN_STACKED = "mlp.experts.down_proj"
_EXPERT = "mlp.experts"
_BESIDE_NORMS = tuple(
    f"{name}.weight"
    for name in ("post_feedforward_layernorm_1", "pre_feedforward_layernorm_2", "post_feedforward_layernorm_2")
)
"""Of a dense part's result, of the rows that enter experts beside it, and of theirs."""
_LINES = 16
"""Those of a small product are a multiple of it."""


@dataclass(frozen=True)
class DenseWeights:
    """The gate's rows come before those of the product that it gates."""

    gate_up_FD: Weight
    down_DF: Weight

    @property
    def products(self) -> tuple[Weight, ...]:
        """The weights that all rows are multiplied by."""
        return self.gate_up_FD, self.down_DF


@dataclass(frozen=True)
class ExpertWeights:
    """Experts are stacked; of each, the gate's rows come before those of the product that it gates.

    `router_FD` has a row for each expert, and behind them that of the gate of the part that all rows take, `shared`;
    zeros fill it up to a number of rows that kernels like. `bias_E` counts for the choice of experts alone, and
    `scale_E` multiplies their weights. Where some experts are `cold`, the stacks are of the others. `uses_E`, int32,
    counts forwards in which an expert had rows. With `scales`, which all experts have on the device, the stacks are
    codes.
    """

    router_FD: Tensor
    gate_up_EFD: Tensor
    down_EDF: Tensor
    uses_E: Tensor
    shared: DenseWeights | None = None
    bias_E: Tensor | None = None
    scale_E: Tensor | None = None
    cold: ColdExperts | None = None
    scales: tuple[ExpertScales, ExpertScales] | None = None

    @property
    def followed(self) -> bool:
        """Whether the part that all rows take lies behind the experts, in the same memory, as if it were one more."""
        if self.shared is None or self.cold is not None or self.scales is not None:
            return False
        pairs = ((self.gate_up_EFD, self.shared.gate_up_FD), (self.down_EDF, self.shared.down_DF))
        return all(
            isinstance(one, Tensor)
            and one.data_ptr() == stack.data_ptr() + stack.nbytes
            and one.shape == stack.shape[1:]
            for stack, one in pairs
        )

    @property
    def expert_bytes(self) -> int:
        """Bytes of one expert, without its scales."""
        return self.gate_up_EFD[0].nbytes + self.down_EDF[0].nbytes

    @property
    def numbers(self) -> tuple[Tensor, Tensor]:
        """Both stacks as numbers, of codes those that they mean."""
        own = self.gate_up_EFD, self.down_EDF
        if self.scales is None:
            return own
        first, second = (scales.widened(codes) for scales, codes in zip(self.scales, own, strict=True))
        return first.to(self.router_FD.dtype), second.to(self.router_FD.dtype)

    @property
    def code_bytes(self) -> int:
        """Bytes of the codes of all experts, a number each; 0: they are numbers."""
        return self.expert_bytes * len(self.uses_E) if self.scales else 0

    @property
    def scale_bytes(self) -> int:
        """Bytes of their scales."""
        return sum(scales.table_EGL.nbytes for scales in self.scales or ())

    @property
    def products(self) -> tuple[Weight, ...]:
        """The weights that all rows are multiplied by; those of experts multiply the rows that chose them."""
        return self.router_FD, *(self.shared.products if self.shared else ())


@dataclass(frozen=True)
class BesideWeights:
    """A dense part and experts beside it: norms of their results, and that of the rows which enter the experts."""

    dense: DenseWeights
    experts: ExpertWeights
    dense_norm_D: Tensor
    into_norm_D: Tensor
    mixed_norm_D: Tensor

    @property
    def products(self) -> tuple[Weight, ...]:
        """The weights that all rows are multiplied by."""
        return *self.dense.products, *self.experts.products


FfnWeights = DenseWeights | ExpertWeights | BesideWeights


def ffn_shapes(ffn: Dense | Experts | Beside, hidden: int, stacked: bool) -> dict[str, tuple[int, ...]]:
    """Return name and shape in a block of every tensor of a feed-forward part."""
    if isinstance(ffn, Beside):
        return _beside_shapes(ffn, hidden)
    own = _dense_shapes(ffn.inner, hidden) if isinstance(ffn, Dense) else _expert_shapes(ffn, hidden, stacked)
    return {f"mlp.{name}": shape for name, shape in own.items()}


def _beside_shapes(ffn: Beside, hidden: int) -> dict[str, tuple[int, ...]]:
    own, shapes = ffn.experts, {f"mlp.{name}": shape for name, shape in _dense_shapes(ffn.dense.inner, hidden).items()}
    shapes |= dict.fromkeys(_BESIDE_NORMS, (hidden,))
    shapes |= {"router.proj.weight": (own.count, hidden), "router.scale": (hidden,)}
    shapes |= {"router.per_expert_scale": (own.count,)} if own.scaled else {}
    return shapes | _stacked_shapes(own, hidden)


def _stacked_shapes(ffn: Experts, hidden: int) -> dict[str, tuple[int, ...]]:
    return {
        "experts.gate_up_proj": (ffn.count, 2 * ffn.inner, hidden),
        "experts.down_proj": (ffn.count, hidden, ffn.inner),
    }


def _expert_shapes(ffn: Experts, hidden: int, stacked: bool) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"gate.weight": (ffn.count, hidden)}
    if stacked:
        shapes |= _stacked_shapes(ffn, hidden)
    else:
        one = _dense_shapes(ffn.inner, hidden)
        shapes |= {f"experts.{index}.{name}": shape for index in range(ffn.count) for name, shape in one.items()}
    if ffn.shared:
        shapes |= {f"shared_expert.{name}": shape for name, shape in _dense_shapes(ffn.shared, hidden).items()}
        shapes |= {"shared_expert_gate.weight": (1, hidden)} if ffn.shared_gated else {}
    return shapes | ({"experts.e_score_correction_bias": (ffn.count,)} if ffn.sigmoid else {})


def read_ffn(
    ffn: Dense | Experts | Beside,
    read: Callable[..., Tensor],
    stacked: bool,
    weigh: Callable[..., Weight],
    decode: Callable[[str], Codes | None] = lambda _: None,
) -> FfnWeights:
    """Read a feed-forward part by `read`, which takes names in a block and concatenates their tensors.

    `weigh` does so for the products of a dense part, whose weights it may leave packed. `decode` gives an expert's
    codes by a name, where they are kept.

    Raises:
        ModelError: a tensor is missing, mis-shaped or not finite.
    """
    if isinstance(ffn, Dense):
        return _read_dense("mlp", weigh)
    if isinstance(ffn, Beside):
        return _read_beside(ffn, read)
    gates = ("mlp.gate.weight", "mlp.shared_expert_gate.weight")
    router_FD = filled(read(*gates) if ffn.shared and ffn.shared_gated else read(gates[0]))
    coded = None if stacked else _read_coded(ffn, read, decode, router_FD)
    if coded is not None:
        (gate_up_EFD, down_EDF), cold, near = coded.stacks, coded.cold, len(coded.stacks[0])
    else:
        (gate_up_EFD, down_EDF), cold = (_read_stacked if stacked else _read_experts)(ffn, read, router_FD)
        near = ffn.resident or ffn.count
    return ExpertWeights(
        router_FD=router_FD,
        gate_up_EFD=gate_up_EFD[:near],
        down_EDF=down_EDF[:near],
        cold=cold,
        scales=None if coded is None else coded.scales,
        uses_E=_unused(ffn, router_FD),
        shared=_read_shared(ffn, read, gate_up_EFD, down_EDF) if ffn.shared else None,
        bias_E=read("mlp.experts.e_score_correction_bias") if ffn.sigmoid else None,
    )


def _read_beside(ffn: Beside, read: Callable[..., Tensor]) -> BesideWeights:
    """Read both parts. What the router multiplies normalised rows by goes into its own lines."""
    lines_ED, dense_D, into_D, mixed_D = read("router.proj.weight"), *(read(name) for name in _BESIDE_NORMS)
    experts = ExpertWeights(
        router_FD=filled(lines_ED * read("router.scale") * lines_ED.shape[1] ** -0.5),
        gate_up_EFD=read("experts.gate_up_proj"),
        down_EDF=read("experts.down_proj"),
        uses_E=_unused(ffn.experts, lines_ED),
        scale_E=read("router.per_expert_scale") if ffn.experts.scaled else None,
    )
    return BesideWeights(_read_dense("mlp", read), experts, dense_D, into_D, mixed_D)


def filled(*weights_FD: Tensor) -> Tensor:
    """Return the lines of weights, and zeros up to a number of lines that kernels like."""
    beyond = -sum(map(len, weights_FD)) % _LINES
    return torch.cat((*weights_FD, weights_FD[0].new_zeros((beyond, weights_FD[0].shape[1]))))


def _unused(ffn: Experts, like: Tensor) -> Tensor:
    return torch.zeros(ffn.count, dtype=torch.int32, device=like.device)


def _read_stacked(
    ffn: Experts, read: Callable[..., Tensor], like_FD: Tensor
) -> tuple[tuple[Tensor, Tensor], ColdExperts | None]:
    """Read the experts of each product at once, and copy them where they do not lie alone."""
    if not ffn.resident and not _behind(ffn):
        return (read(STACKED), read(_DOWN_STACKED)), None
    stacks, cold = _new_experts(ffn, like_FD, ffn.count + _behind(ffn))
    for number, name in enumerate((STACKED, _DOWN_STACKED)):
        for index, expert in enumerate(read(name)):
            stack_of(index, stacks[number], cold.host[number] if cold else None).copy_(expert)
    return stacks, cold


def _read_experts(
    ffn: Experts, read: Callable[..., Tensor], like_FD: Tensor
) -> tuple[tuple[Tensor, Tensor], ColdExperts | None]:
    """Read experts one by one into their places: of a layer's gigabytes there is never a second copy."""
    stacks, cold = _new_experts(ffn, like_FD, ffn.count + _behind(ffn))
    for index in range(ffn.count):
        both_FD, down_DF = (stack_of(index, stacks[one], cold.host[one] if cold else None) for one in (0, 1))
        _read_into(both_FD, down_DF, f"{_EXPERT}.{index}", read)
    return stacks, cold


@dataclass(frozen=True)
class _Coded:
    """Experts as codes."""

    stacks: tuple[Tensor, Tensor]
    cold: ColdExperts | None
    scales: tuple[ExpertScales, ExpertScales]


def _read_coded(
    ffn: Experts, read: Callable[..., Tensor], decode: Callable[[str], Codes | None], like_FD: Tensor
) -> _Coded | None:
    """Read experts one by one as codes; None where they are others: the first gate and product behind it say so.

    Where some lie in host memory the device holds as many more as a code takes less than a number.

    Raises:
        ModelError: a tensor is missing, mis-shaped or not finite, or some are codes and others are not.
    """

    def codes_of(name: str) -> Codes:
        codes = decode(name)
        if codes is None or not are_taken(codes):
            read(name)  # which says what is wrong with a tensor
            raise ModelError(f"{name} has no codes that kernels take, though others have: set fp8_products to false")
        return codes

    first = [decode(f"{_EXPERT}.0.{name}_proj.weight") for name in ("gate", "down")]
    if any(codes is None or not are_taken(codes) for codes in first):
        return None
    like = torch.empty((0, like_FD.shape[1]), dtype=torch.uint8, device=like_FD.device)
    resident = min(ffn.count, ffn.resident * like_FD.itemsize)
    stacks, cold = _new_experts(replace(ffn, resident=resident), like, ffn.count)
    scales: tuple[list[Tensor], list[Tensor]] = ([], [])
    for index in range(ffn.count):
        both_FD, down_DF = (stack_of(index, stacks[one], cold.host[one] if cold else None) for one in (0, 1))
        gate, up, down = (codes_of(f"{_EXPERT}.{index}.{name}_proj.weight") for name in ("gate", "up", "down"))
        for lines_FD, codes in ((both_FD[: ffn.inner], gate), (both_FD[ffn.inner :], up), (down_DF, down)):
            lines_FD.copy_(dealt(codes.codes_FD.to(like.device)).flatten(1))
        scales[0].append(torch.cat((gate.scale_FG, up.scale_FG)))
        scales[1].append(down.scale_FG)
    return _Coded(stacks, cold, (ExpertScales.of(scales[0], like.device), ExpertScales.of(scales[1], like.device)))


def _read_shared(ffn: Experts, read: Callable[..., Tensor], gate_up_EFD: Tensor, down_EDF: Tensor) -> DenseWeights:
    """Read the part that all rows take, into its place behind the experts where it has one."""
    if not _behind(ffn) or gate_up_EFD.dtype == torch.uint8:
        return _read_dense("mlp.shared_expert", read)
    _read_into(gate_up_EFD[ffn.count], down_EDF[ffn.count], "mlp.shared_expert", read)
    return DenseWeights(gate_up_EFD[ffn.count], down_EDF[ffn.count])


def _read_into(both_FD: Tensor, down_DF: Tensor, prefix: str, read: Callable[..., Tensor]) -> None:
    inner = down_DF.shape[1]
    both_FD[:inner].copy_(read(f"{prefix}.gate_proj.weight"))
    both_FD[inner:].copy_(read(f"{prefix}.up_proj.weight"))
    down_DF.copy_(read(f"{prefix}.down_proj.weight"))


def _new_experts(ffn: Experts, like_FD: Tensor, count: int) -> tuple[tuple[Tensor, Tensor], ColdExperts | None]:
    hidden, inner = like_FD.shape[1], ffn.inner
    return new_experts(count, ffn.resident or count, ((2 * inner, hidden), (hidden, inner)), like_FD)


def _behind(ffn: Experts) -> bool:
    """Whether the part that all rows take gets its place behind the experts: it has their size, and none is cold."""
    return ffn.shared == ffn.inner and not ffn.resident


def _read_dense(prefix: str, read: Callable[..., Weight]) -> DenseWeights:
    return DenseWeights(
        gate_up_FD=read(f"{prefix}.gate_proj.weight", f"{prefix}.up_proj.weight"),
        down_DF=read(f"{prefix}.down_proj.weight"),
    )


def _dense_shapes(inner: int, hidden: int) -> dict[str, tuple[int, ...]]:
    return {"gate_proj.weight": (inner, hidden), "up_proj.weight": (inner, hidden), "down_proj.weight": (hidden, inner)}
