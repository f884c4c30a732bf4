"""The terms of a pair's memory budget in bytes, by the shapes of its models, and the memory that is available.

The pool is sized before a step is captured, so what steps hold is estimated: the widest verify or the longest chunk
with its logits, and for each process what CUDA, its libraries and the captured graphs take beside tensors. The latter
were measured on an H200 (docs/log/2026-11.md).
"""

from collections.abc import Mapping, Sequence
from math import prod

import torch

from services.common.kernels.accept import mask_words
from services.common.kernels.accept.scratch import scratch_bytes
from services.common.kernels.argmax_token import columns_at_once
from services.common.kernels.linear.int8_weight import SCALE_BYTES
from services.common.model import DraftContext, Target
from services.common.model.drafters.coupling import seeded
from services.common.model.spec import Beside, Delta, Dense, Experts, StackSpec
from services.common.model.states.states import SequenceStates
from services.common.model.weights.weights import table_elements
from services.common.pair.arena.flags import FLAG_PAIRS
from services.common.request.errors import Code, PacelineError, Reason
from services.target.cache.windows import WindowPlaces
from services.target.device.noise_ring import bytes_per_slot
from services.target.device.shapes import buckets_of, mixed_of, packs_of, shorts_of
from services.target.device.steps import MODES
from services.target.settings import TargetSettings
from services.target.sizing.budget import MemoryBudget, MemoryTerms

_STATE_BYTES_PER_TOKEN_ID = 9
"""Per slot and vocabulary entry: bias, count and whether the prompt has it."""
_TARGET_BYTES, _DRAFTER_BYTES, _LOOKUP_BYTES = 808 << 20, 540 << 20, 384 << 20
"""Bytes of each process on a GPU beside tensors and graphs: context, kernels, libraries and their workspaces.

A drafter without a checkpoint multiplies nothing, so it loads no library for products and captures little.
"""
_GRAPH_LAYER_BYTES = 81 << 10
"""Bytes of a captured step for each of its layers."""
_GRAPHS_SHARE = 0.01
"""Of the memory for K/V, what the graphs of widths may take that rounds can do without."""
_DRAFT_ROWS = 1.2
"""Factor on the memory of a draft's rows: memory that one tensor frees does not always fit the next one."""
_PACK = 256
"""Prompt tokens of a pack are a multiple of it."""
_PROCESS, _DRAFTER = "process", "drafter"
_CPU_BYTES = 512 << 20
"""Bytes for slots and K/V on a CPU beside recurrent states, unless the settings say otherwise."""
_STATES = "target_slot_states"
_PLACE_BYTES = 4
"""Of a block: where it lies in layers with a window."""
_MOST_AHEAD = 3
"""Rounds in flight at most, and some more."""
Rounds = tuple[tuple[int, ...], tuple[int, ...]]
"""Widths of chains, and of trees."""


def code_bytes(settings: TargetSettings, device: torch.device) -> Mapping[int, int]:
    """By bits of codes that products may multiply by, the most bytes that codes and their numbers may take; 0: any.

    Of a pair's memory keys and values have the other half at least.
    """
    if device.type != "cuda":
        return {}
    room = (settings.memory_bytes or int(settings.memory_fraction * torch.cuda.mem_get_info(device)[1])) // 2
    return {bits: 0 if kept == "true" else room for bits, kept in settings.code_bits.items() if kept != "false"}


def pair_terms(
    settings: TargetSettings, model: Target, context: DraftContext, limit: int, widths: Sequence[int],
    trees: Sequence[int] = (),
) -> MemoryTerms:  # fmt: skip
    """The terms of a target at this context limit, and of its drafter, with rounds of chains and of trees."""
    every = sorted((*widths, *trees))
    near = window_places(settings, model, limit, every, trees)
    target = _target_terms(settings, model, context, limit, every, near)
    return target.plus(_drafter_terms(settings, model, context, limit, every)).without_zeros()


def pack_tokens(settings: TargetSettings, model: Target, widths: Sequence[int]) -> int:
    """Most prompt tokens of a round in which nothing decodes: as many as fit where the widest verify chooses tokens.

    They are never fewer than those of a round in which requests decode.
    """
    room = _choice_bytes(settings, model, widths) // (model.dtype.itemsize * _row_elements(model.spec))
    return max(settings.chunk_tokens, min(settings.pack_tokens, room // _PACK * _PACK))


def window_ahead(settings: TargetSettings, model: Target, widths: Sequence[int]) -> int:
    """Most tokens that a request writes behind those that are committed: a chunk, or the rounds in flight."""
    return max(pack_tokens(settings, model, widths), (_MOST_AHEAD + 1) * widths[-1])


def window_places(
    settings: TargetSettings, model: Target, limit: int, widths: Sequence[int], trees: Sequence[int] = ()
) -> int:
    """Blocks of their own for layers with a window; 0 where sequences are too short for it to save memory.

    A slot has those that a request may hold at once, and a window's more, from which later requests go on. Trees, whose
    paths move, keep all blocks.
    """
    windows = {own.window for own in model.spec.groups}
    if trees or not any(windows) or 0 not in windows:
        return 0
    size, window = settings.block_size, max(windows)
    each = WindowPlaces.needed(window, window_ahead(settings, model, widths), size) + -(-window // size)
    return settings.slots * each if each < -(-limit // size) else 0


def within(
    settings: TargetSettings, model: Target, context: DraftContext, limit: int, choices: Sequence[Rounds]
) -> Rounds:
    """The first choice whose graphs take a hundredth of the memory for K/V at most, beside those of the last one."""
    *better, last = dict.fromkeys(choices)
    if not better:
        return last
    least = pair_terms(settings, model, context, limit, *last)
    left = available_bytes(settings, least, model.device) - least.fixed_bytes - settings.slots * least.slot_bytes
    for choice in better:
        whole = pair_terms(settings, model, context, limit, *choice)
        more = whole.fixed_bytes - least.fixed_bytes + settings.slots * (whole.slot_bytes - least.slot_bytes)
        if more <= _GRAPHS_SHARE * left:
            return choice
    return last


def _target_terms(
    settings: TargetSettings, model: Target, context: DraftContext, limit: int, widths: Sequence[int], near: int
) -> MemoryTerms:
    """What the target's process holds; layers with a window have `near` blocks of their own, or as many as others."""
    spec, size = model.spec, model.dtype.itemsize
    states = SequenceStates.sizes(spec, size, widths[-1], settings.coded)
    fixed = {
        "target_weights": model.weight_bytes,
        "target_states": states.fixed,
        "state_snapshots": settings.held_snapshots * states.per_snapshot,
        "context_weights": size * context.elements,
        "flags": 16 * FLAG_PAIRS,
        "window_kv": (near + 1) * settings.block_size * states.windowed if near else 0,
    }
    per_slot = {
        "state": _STATE_BYTES_PER_TOKEN_ID * spec.vocab_size + 4 * limit + 4 * widths[-1] * mask_words(spec.vocab_size),
        _STATES: states.per_slot,
    }
    seed = size * context.seed_width
    per_slot |= {"seeds": 2 * seed}  # of both sides
    kept = states.per_token - (states.windowed if near else 0)
    per_token = {"target_kv": kept, "draft_kv": size * prod(context.kv_shape(1, 1)),
                 "block_seeds": -(-seed // settings.block_size)}  # fmt: skip
    on_gpu = model.device.type == "cuda"
    fixed["rotation"] = sum(_rotation_bytes(each, spec.max_positions, on_gpu) for each in (spec, context.spec))
    if on_gpu:
        graphs = _target_steps(settings, model, widths) * len(spec.layers) * _GRAPH_LAYER_BYTES
        fixed |= {"logits": _logit_bytes(settings, model, widths), "steps": _step_bytes(settings, model, widths)}
        fixed |= {_PROCESS: _TARGET_BYTES + graphs, "loading": _left_bytes(model.device)}
        fixed["expert_rooms"] = _expert_bytes(model)
    else:
        per_slot["noise"] = _noise_bytes(model, widths)
    fixed["pad_slot"] = sum(size for name, size in per_slot.items() if name != _STATES)
    if near:
        per_token["window_places"] = -(-_PLACE_BYTES // settings.block_size)
    return MemoryTerms(fixed, per_slot, per_token)


def _drafter_terms(
    settings: TargetSettings, model: Target, context: DraftContext, limit: int, widths: Sequence[int]
) -> MemoryTerms:
    """What the drafter's process holds, and what the target holds in its place."""
    size, draft = model.dtype.itemsize, context.spec
    process = size * context.drafter_elements
    if model.device.type != "cuda":
        return MemoryTerms({_DRAFTER: process}, {"drafter_noise": 0 if draft is None else _noise_bytes(model, widths)})
    if draft is None:
        return MemoryTerms({_DRAFTER: process + (_LOOKUP_BYTES if settings.speculates else 0)})
    process += _DRAFTER_BYTES if settings.speculates else 0
    process += _draft_bytes(settings, draft, size, widths) + _rotation_bytes(draft, limit, on_gpu=True)
    if settings.drafter_weights == "int8":
        process += _int8_bytes(settings, context, draft, size)
    # A process that maps a GPU's memory can write it, so the target keeps its own embedding and head private.
    return MemoryTerms({_DRAFTER: process, "drafter_tables": size * table_elements(model.spec)})


def available_bytes(settings: TargetSettings, terms: MemoryTerms, device: torch.device) -> int:
    """Bytes for all terms together: as set, else a fraction of the GPU, or on a CPU a fixed amount beside weights."""
    if settings.memory_bytes:
        return settings.memory_bytes
    if device.type == "cpu":
        return terms.fixed_bytes + settings.slots * terms.per_slot.get(_STATES, 0) + _CPU_BYTES
    _, total = torch.cuda.mem_get_info(device)
    return int(settings.memory_fraction * total)


def check_free(budget: MemoryBudget, device: torch.device) -> None:
    """Refuses a budget for which a GPU has too little free memory: a smaller pool would stay small for ever.

    Raises:
        PacelineError: Other processes hold memory that is needed.
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


def _left_bytes(device: torch.device) -> int:
    """Give back what loading has left whole; return what is left between weights and stays with the process."""
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def _logit_bytes(settings: TargetSettings, model: Target, widths: Sequence[int]) -> int:
    """Bytes of the logits of the largest round, which all steps share."""
    return model.logit_type.itemsize * buckets_of(settings.slots)[-1] * widths[-1] * model.spec.vocab_size


def _step_bytes(settings: TargetSettings, model: Target, widths: Sequence[int]) -> int:
    """What the largest step holds between its kernels: of its layers, or behind them to choose tokens."""
    rows = max(buckets_of(settings.slots)[-1] * widths[-1], pack_tokens(settings, model, widths))
    layers = model.dtype.itemsize * rows * _row_elements(model.spec)
    return max(layers, _choice_bytes(settings, model, widths)) + model.widened_bytes


def _choice_bytes(settings: TargetSettings, model: Target, widths: Sequence[int]) -> int:
    """What the widest verify holds beside its logits while it chooses tokens."""
    rows, vocab, size = buckets_of(settings.slots)[-1] * widths[-1], model.spec.vocab_size, model.dtype.itemsize
    # Bounded logits are made of a product that lies beside them.
    product = size * rows * vocab if model.spec.logit_cap else 0
    return max(product, scratch_bytes(rows, vocab)) + 2 * size * rows * model.spec.hidden_size


def _expert_bytes(model: Target) -> int:
    """What the experts of a layer change places through, where some lie in host memory."""
    return max((own.expert_bytes for own in model.mixtures if own.cold is not None), default=0)


def _draft_bytes(settings: TargetSettings, draft: StackSpec, size: int, widths: Sequence[int]) -> int:
    """What the largest draft holds, with the graphs; it holds the scores of some tokens at a time.

    Where it makes the noise of draws it has a second graph of each size.
    """
    rows = settings.slots * widths[-1]
    logits = rows * columns_at_once(rows, draft.vocab_size)
    held = size * (int(_DRAFT_ROWS * rows * _drafted_elements(draft)) + logits)
    graphs = len(buckets_of(settings.slots)) * (len(widths) - 1) * (1 + seeded(draft))
    return held + graphs * len(draft.layers) * _GRAPH_LAYER_BYTES


def _int8_bytes(settings: TargetSettings, context: DraftContext, draft: StackSpec, size: int) -> int:
    """What weights and rows of eight bits take beside weights of `size` bytes a number; the head is a copy."""
    head, layers = draft.vocab_size * draft.hidden_size, context.drafter_elements
    rows = buckets_of(settings.slots)[-1] * (context.most_rows or 1)
    scales = SCALE_BYTES * (draft.vocab_size + layers // draft.hidden_size)
    return head + layers - size * layers + scales + rows * _drafted_elements(draft)


def _rotation_bytes(spec: StackSpec | None, positions: int, on_gpu: bool) -> int:
    """Bytes of rotary tables: for each position a row of cosines and one of sines, halves of them on a GPU."""
    if spec is None:
        return 0
    columns = sum(size for _, size in {(own.rope, own.head_dim) for own in spec.groups})
    return (4 if on_gpu else 8) * columns * positions


def _noise_bytes(model: Target, widths: Sequence[int]) -> int:
    """Bytes of a slot's noise on a CPU."""
    wide = torch.float64 if model.dtype == torch.float64 else torch.float32
    return bytes_per_slot(model.spec.vocab_size, widths[-1], wide)


def _target_steps(settings: TargetSettings, model: Target, widths: Sequence[int]) -> int:
    """How many forwards a target captures; the steps of first tokens have no layers."""
    if settings.eager:
        return 0
    buckets = buckets_of(settings.slots)
    shorts = shorts_of(buckets, widths, model.spec, model.dtype, model.device, coded=settings.coded)
    rounds = len(buckets) * len(widths) + len(shorts)
    packs = packs_of(pack_tokens(settings, model, widths), model.spec, model.device)
    mixed = mixed_of(packs, buckets[-1], model.spec, model.device)
    return len(MODES) * rounds + len(packs) + (mixed is not None)


def _row_elements(spec: StackSpec) -> int:
    """Numbers of a row that lie side by side at once: of the mixer or of the part behind it, and of the stream.

    Of attention those are what the first product makes, turned queries, mixed heads, and gated ones.
    """
    mixed = max(own.head_dim * ((3 + own.gated + own.head_gates) * own.heads + 2 * own.kv_heads) for own in spec.groups)
    fed = max(_ffn_elements(layer.ffn, spec.hidden_size) for layer in spec.layers)
    return 4 * spec.hidden_size + max(mixed, fed, _delta_elements(spec.delta))


def _drafted_elements(spec: StackSpec) -> int:
    """Numbers of a row of a draft: pieces of attention fit no tensor behind it, so both parts count."""
    own = spec.attention
    mixed = own.head_dim * ((2 + own.gated) * own.heads + 2 * own.kv_heads)
    return 6 * spec.hidden_size + mixed + max(_ffn_elements(layer.ffn, spec.hidden_size) for layer in spec.layers)


def _ffn_elements(ffn: Dense | Experts | Beside, hidden: int) -> int:
    """Numbers of a row between the products; a row's experts have a part each, and places of four bytes.

    Of the places of tiles half are taken, or more.
    """
    if isinstance(ffn, Beside):
        return _ffn_elements(ffn.dense, hidden) + _ffn_elements(ffn.experts, hidden) + 3 * hidden
    if isinstance(ffn, Dense):
        return 3 * ffn.inner
    shared = 3 * ffn.shared + hidden if ffn.shared else 0
    return ffn.count + ffn.top_k * (2 * ffn.inner + hidden + 8) + shared


def _delta_elements(delta: Delta | None) -> int:
    """Numbers of two bytes for a row of a recurrent mixer, with those of two and four that a chunk is prepared to."""
    if delta is None:
        return 0
    values, keys = delta.v_heads * delta.v_dim, delta.k_heads * delta.k_dim
    factors, bases, rates = 4 * delta.v_heads * delta.k_dim, 4 * values, 4 * delta.v_heads
    return delta.kept + 4 * values + factors + bases + 2 * keys + rates
