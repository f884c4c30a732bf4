"""What a pair holds, in bytes: the terms of its memory budget by the shapes of its models, and what there is to spend.

The pool is sized before a step is captured, so what steps hold is estimated: the widest verify or the longest chunk
with its logits, and for each process what CUDA, its libraries and the captured graphs take beside tensors. The latter
were measured on an H200 with 1, 8 and 128 slots, 10, 38 and 70 captured steps (docs/log/2026-11.md).
"""

from collections.abc import Sequence
from typing import Protocol

import torch

from services.common.kernels.accept.scratch import scratch_bytes
from services.common.kernels.best_token import columns_at_once
from services.common.model import DflashContext, Target
from services.common.model.dflash.spec import block_shapes, context_shapes
from services.common.model.spec import StackSpec
from services.common.model.weights import elements, table_elements
from services.common.request.errors import Code, PacelineError, Reason
from services.target.device.noise_ring import bytes_per_slot
from services.target.device.shapes import buckets_of, chunks_of
from services.target.device.steps import MODES
from services.target.sizing.budget import MemoryBudget, Terms, kv_token_bytes

_STATE_BYTES_PER_TOKEN_ID = 9
"""Per slot and vocabulary entry: bias, count and whether the prompt has it."""
_TARGET_BYTES, _DRAFTER_BYTES = 848 << 20, 560 << 20
"""Of each process on a GPU, beside tensors and graphs: its context, kernels, libraries and their workspaces."""
_MEASURED_POSITIONS = 40_960
"""Rows of the rotary tables that these figures include."""
_GRAPH_LAYER_BYTES = 81 << 10
"""Of a captured step, for each of its layers."""
_DRAFT_ROWS = 1.2
"""Memory that a draft keeps for its rows, over what they are: not all that one tensor frees fits the next."""
_PROCESS, _DRAFTER = "process", "drafter"
_CPU_BYTES = 512 << 20
"""For slots and K/V on a CPU, unless the settings say otherwise."""


class SizingSettings(Protocol):
    """What the plan reads of a target's settings."""

    @property
    def slots(self) -> int:
        """Requests that run at once."""
        ...

    @property
    def chunk_tokens(self) -> int:
        """Most prompt tokens of a step."""
        ...

    @property
    def eager(self) -> bool:
        """Whether steps run without graphs."""
        ...

    @property
    def speculates(self) -> bool:
        """Whether a drafter is expected on the device."""
        ...

    @property
    def memory_bytes(self) -> int:
        """What the pair may hold; 0 leaves it to the fraction."""
        ...

    @property
    def memory_fraction(self) -> float:
        """The share of a GPU that the pair may hold."""
        ...


def pair_terms(
    settings: SizingSettings, model: Target, context: DflashContext | None, limit: int, widths: Sequence[int]
) -> Terms:
    """The terms of a target at this context limit, and of its drafter."""
    spec, size = model.spec, model.dtype.itemsize
    on_gpu = model.device.type == "cuda"
    fixed = {"target_weights": size * model.elements}
    per_slot = {"state": _STATE_BYTES_PER_TOKEN_ID * spec.vocab_size + 4 * limit}
    per_token = {"target_kv": _kv_bytes(spec, size)}
    if context is not None:
        draft = context.spec
        fixed["context_weights"] = size * elements(context_shapes(draft))
        fixed[_DRAFTER] = size * elements(block_shapes(draft))
        per_token["draft_kv"] = _kv_bytes(draft, size)
    if on_gpu:
        graphs = _target_steps(settings, widths) * len(spec.layers) * _GRAPH_LAYER_BYTES
        rotation = _rotation_bytes(spec, spec.max_positions)
        fixed |= {"steps": _step_bytes(settings, model, widths), _PROCESS: _TARGET_BYTES + graphs + rotation}
        if settings.speculates:
            fixed[_DRAFTER] = fixed.get(_DRAFTER, 0) + _DRAFTER_BYTES
        if context is not None:
            fixed[_PROCESS] += _rotation_bytes(context.spec, spec.max_positions)
            fixed[_DRAFTER] += _draft_bytes(settings, context, widths) + _rotation_bytes(context.spec, limit)
            # Whoever maps a GPU's memory can write it: the target keeps its own embedding and head to itself.
            fixed["drafter_tables"] = size * table_elements(spec)
    else:
        noise = torch.float64 if model.dtype == torch.float64 else torch.float32
        per_slot["noise"] = bytes_per_slot(spec.vocab_size, widths[-1], noise)
        if context is not None:
            per_slot["drafter_noise"] = per_slot["noise"]
    return Terms(fixed, per_slot, per_token)


def available_bytes(settings: SizingSettings, terms: Terms, device: torch.device) -> int:
    """What all terms together may take: as set, else a fraction of the GPU, or some memory beside a CPU's weights."""
    if settings.memory_bytes:
        return settings.memory_bytes
    if device.type == "cpu":
        return terms.fixed_bytes + _CPU_BYTES
    _, total = torch.cuda.mem_get_info(device)
    return int(settings.memory_fraction * total)


def check_free(budget: MemoryBudget, device: torch.device) -> None:
    """Refuses a budget for which a GPU has too little left: a smaller pool would stay small when others have left.

    Raises:
        PacelineError: Others hold what is needed.
    """
    if device.type == "cpu":
        return
    there = {_PROCESS, _DRAFTER}  # this process runs, and the drafter may
    needed = budget.total_bytes - sum(size for name, size in budget.terms.fixed.items() if name in there)
    free, _ = torch.cuda.mem_get_info(device)
    missing = needed - torch.cuda.memory_reserved(device) - free
    if missing > 0:
        message = f"memory: {needed} bytes are planned on a GPU on which others hold {missing} of them"
        raise PacelineError(Code.FAILED_PRECONDITION, Reason.INVALID_FIELD, message, "memory_fraction")


def _step_bytes(settings: SizingSettings, model: Target, widths: Sequence[int]) -> int:
    """What the largest step holds between its kernels; a chunk has logits of one row."""
    vocab, row = model.spec.vocab_size, _row_elements(model.spec)
    rows = settings.slots * widths[-1]
    forward = max(rows * (row + vocab), settings.chunk_tokens * row)
    return model.dtype.itemsize * forward + scratch_bytes(rows, vocab)


def _draft_bytes(settings: SizingSettings, context: DflashContext, widths: Sequence[int]) -> int:
    """The same of a drafter, which has the scores of some tokens at a time, with its graphs."""
    rows = settings.slots * widths[-1]
    logits = rows * columns_at_once(rows, context.spec.vocab_size)
    held = context.dtype.itemsize * (int(_DRAFT_ROWS * rows * _row_elements(context.spec)) + logits)
    graphs = len(buckets_of(settings.slots)) * (len(widths) - 1)
    return held + graphs * len(context.spec.layers) * _GRAPH_LAYER_BYTES


def _rotation_bytes(spec: StackSpec, positions: int) -> int:
    """What rotary tables of a GPU hold over the measured ones: half a cosine's and half a sine's row a position."""
    return 4 * spec.attention.head_dim * max(0, positions - _MEASURED_POSITIONS)


def _target_steps(settings: SizingSettings, widths: Sequence[int]) -> int:
    """How many steps a target captures."""
    if settings.eager:
        return 0
    rounds = len(buckets_of(settings.slots)) * len(widths)
    return len(MODES) * (rounds + 1) + len(chunks_of(settings.chunk_tokens))


def _row_elements(spec: StackSpec) -> int:
    attention = spec.attention
    heads = 2 * (attention.heads + attention.kv_heads) * attention.head_dim
    return 6 * spec.hidden_size + heads + 3 * max(layer.ffn.inner for layer in spec.layers)


def _kv_bytes(spec: StackSpec, size: int) -> int:
    attention = spec.attention
    return kv_token_bytes(len(spec.layers), attention.kv_heads, attention.head_dim, size)
