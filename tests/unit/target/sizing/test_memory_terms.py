"""The terms of a pair's budget: weights as in the checkpoints, what a GPU's steps hold, what there is to spend."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from safetensors import safe_open

from deploy.stack import EMBEDDED
from services.common.kernels.span_attention import Mask
from services.common.model import NoContext, Target
from services.common.model.drafters import read_drafter_spec
from services.common.model.drafters.context import BlockContext
from services.common.model.drafters.spec import DrafterSpec, block_shapes, context_shapes
from services.common.model.families import read_target_spec
from services.common.model.spec import Attention, Delta, Dense, LayerSpec, ModelSpec, Rope
from services.common.model.states.state_sizes import kv_shape
from services.common.model.weights.weights import elements, model_shapes
from services.common.request.errors import PacelineError
from services.target.device.shapes import buckets_of
from services.target.settings import TargetSettings
from services.target.sizing.budget import plan_memory
from services.target.sizing.memory_terms import (
    available_bytes,
    check_free,
    pack_tokens,
    pair_terms,
    window_ahead,
    window_places,
    within,
)

GIB, MIB = 1 << 30, 1 << 20
LIMIT = 40_960
LAYER = LayerSpec(Attention(heads=32, kv_heads=8, head_dim=128, rope=Rope(1e6)), Dense(9728))
STACK: dict[str, Any] = {"vocab_size": 151_936, "hidden_size": 2560, "max_positions": LIMIT, "norm_eps": 1e-6}
QWEN3_4B = ModelSpec(**STACK, layers=(LAYER,) * 36, tied=True, eos_token_ids=(0,))
B16 = DrafterSpec(
    **STACK, layers=(LAYER,) * 5, block_size=16, mask_token_id=1, target_layer_ids=(1, 9, 17, 25, 33),
    num_target_layers=36, masks=(Mask(),) * 5,
)  # fmt: skip
ON_GPU = TargetSettings(model="m", drafter_address="unix:/d", device="cuda", dtype="bfloat16", slots=16)


@dataclass(frozen=True)
class Loaded:
    """As much of a model as terms are made of."""

    spec: ModelSpec | DrafterSpec
    device: torch.device = torch.device("cuda")
    dtype: torch.dtype = torch.bfloat16
    logit_type: torch.dtype = torch.bfloat16
    seed_width: int = 0
    widened_bytes: int = 0
    mixtures: tuple[()] = ()

    @property
    def elements(self) -> int:
        return elements(model_shapes(self.spec) if isinstance(self.spec, ModelSpec) else context_shapes(self.spec))

    @property
    def weight_bytes(self) -> int:
        return self.dtype.itemsize * self.elements

    @property
    def drafter_elements(self) -> int:
        assert isinstance(self.spec, DrafterSpec)
        return elements(block_shapes(self.spec))

    @property
    def most_rows(self) -> int:
        assert isinstance(self.spec, DrafterSpec)
        return self.spec.block_size

    def kv_shape(self, blocks: int, block_size: int) -> tuple[int, ...]:
        return kv_shape(self.spec, blocks, block_size)


MODEL, CONTEXT = cast("Target", Loaded(QWEN3_4B)), cast("BlockContext", Loaded(B16))


def stored(folder: Path) -> dict[str, int]:
    """Numbers in each tensor of a checkpoint."""
    with safe_open(folder / "model.safetensors", "pt") as tensors:
        return {name: tensors.get_tensor(name).numel() for name in tensors.keys()}  # noqa: SIM118 - it is no mapping


def test_weights_are_those_of_the_checkpoints() -> None:
    assert elements(model_shapes(read_target_spec(EMBEDDED / "target"))) == sum(stored(EMBEDDED / "target").values())
    drafter, tensors = read_drafter_spec(EMBEDDED / "drafter"), stored(EMBEDDED / "drafter")
    both = sum(count for name, count in tensors.items() if any(part in name for part in ("k_proj", "v_proj", "k_norm")))
    halves = elements(context_shapes(drafter)) + elements(block_shapes(drafter))
    assert halves == sum(tensors.values()) + both


def test_a_gpus_terms_for_a_model_of_four_billion() -> None:
    terms = pair_terms(ON_GPU, MODEL, CONTEXT, LIMIT, (1, 4, 8, 16))
    assert terms.per_token == {"target_kv": 147_456, "draft_kv": 20_480}
    assert terms.fixed["target_weights"] == pytest.approx(2 * 4.022e9, rel=1e-3)
    assert terms.fixed["logits"] == 256 * 151_936 * 2, "which all steps share"
    assert 256 * 151_936 * 4 < terms.fixed["steps"] < 0.2 * GIB
    assert terms.fixed["rotation"] == 2 * 4 * 128 * LIMIT, "its own table and that of the draft context"
    assert terms.fixed["drafter_tables"] == 2 * 151_936 * 2560, "its copy of the embedding, which is the head too"
    weights = {"target_weights", "context_weights", "drafter_tables"}
    assert set(terms.fixed) == weights | {"rotation", "logits", "steps", "pad_slot", "flags", "process", "drafter"}
    assert "noise" not in terms.per_slot


def test_keys_and_values_in_eight_bits_make_room_for_twice_as_many_tokens() -> None:
    wide, eight = (
        pair_terms(replace(ON_GPU, kv_dtype=kind), MODEL, CONTEXT, LIMIT, (1, 4, 8, 16)) for kind in ("auto", "int8")
    )
    assert eight.per_token == {"target_kv": 74_304, "draft_kv": 20_480}, "the draft context stays"
    fixed = dict(eight.fixed)
    more = fixed.pop("process") - wide.fixed["process"]
    assert (fixed | {"process": wide.fixed["process"]}, eight.per_slot) == (wide.fixed, wide.per_slot)
    assert 48 << 20 < more < 56 << 20, "long contexts of codes have graphs of their own: nine shapes in both modes"
    alone = pair_terms(replace(ON_GPU, kv_dtype="int8"), MODEL, NoContext(), LIMIT, (1,))
    assert alone.token_bytes * 1.98 < pair_terms(ON_GPU, MODEL, NoContext(), LIMIT, (1,)).token_bytes


def test_pieces_that_loading_leaves_between_weights_are_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 9 * GIB)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 7 * GIB)
    assert pair_terms(ON_GPU, MODEL, CONTEXT, LIMIT, (1, 16)).fixed["loading"] == 2 * GIB


@pytest.mark.parametrize(
    ("slots", "widths", "target_mib", "shorts", "drafter_mib"),
    [(1, (1, 16), 900, 2, 566), (8, (1, 4, 8, 16), 933, 14, 594), (128, (1, 4, 8, 16), 1071, 14, 930)],
)
def test_processes_are_planned_as_they_were_measured(
    slots: int, widths: tuple[int, ...], target_mib: float, shorts: int, drafter_mib: float
) -> None:
    """What an H200 held beside weights and tensors, and beside a drafter's weights.

    A drafter of one slot needs no cuBLAS and held 491 MiB; the plan keeps 75 for those that do. When targets were
    measured they had no rounds for short contexts, none of 24, 48 and 96 requests, and no pack with rows beside it.
    Each is planned like any other step.
    """
    terms = pair_terms(replace(ON_GPU, slots=slots), MODEL, CONTEXT, LIMIT, widths)
    halfway = sum(bucket.bit_count() > 1 for bucket in buckets_of(slots))
    later_mib = (shorts + halfway * len(widths) + 1) * len(MODEL.spec.layers) * 81 / 1024
    process = terms.fixed["process"] + terms.fixed["rotation"]
    assert process / MIB - later_mib == pytest.approx(target_mib, abs=24)
    assert terms.fixed["drafter"] / MIB - 2 * elements(block_shapes(B16)) / MIB == pytest.approx(drafter_mib, abs=24)


@pytest.mark.parametrize(("slots", "more_mb"), [(4, -111), (8, -107)])
def test_a_drafter_in_eight_bits_is_planned(slots: int, more_mb: float) -> None:
    """It has a head of its own, half as large weights, and rows of eight bits."""
    wide, eight = (
        pair_terms(replace(ON_GPU, slots=slots, drafter_weights=kind), MODEL, CONTEXT, LIMIT, (1, 4, 8, 16)).fixed
        for kind in ("dtype", "int8")
    )
    assert (eight["drafter"] - wide["drafter"]) / 1e6 == pytest.approx(more_mb, abs=2)
    assert {**eight, "drafter": 0} == {**wide, "drafter": 0}


@pytest.mark.parametrize("slots", [1, 16, 128])
def test_steps_of_rounds_that_draw_are_planned(slots: int) -> None:
    """A drafter that makes the target's noise has two steps of each size."""
    settings = replace(ON_GPU, slots=slots)
    plain, drawn, bounded = (
        pair_terms(settings, MODEL, cast(BlockContext, Loaded(spec)), LIMIT, (1, 4, 8), (16,)).fixed
        for spec in (B16, replace(B16, kind="dflash2"), replace(B16, kind="dflash2", logit_cap=30.0))
    )
    steps = len(buckets_of(slots)) * 3
    assert drawn["drafter"] - plain["drafter"] == steps * len(B16.layers) * (81 << 10)
    assert bounded == plain, "it names the likeliest"


def test_longer_rotary_tables_are_planned() -> None:
    """A target has its own and the drafter's, a drafter one: 4 bytes for each position and dimension."""
    longer = cast("Target", Loaded(replace(QWEN3_4B, max_positions=262_144)))
    short, long = (pair_terms(ON_GPU, *pair, (1, 16)) for pair in ((MODEL, CONTEXT, LIMIT), (longer, CONTEXT, 262_144)))
    more = 4 * 128 * (262_144 - LIMIT)
    assert long.fixed["rotation"] - short.fixed["rotation"] == 2 * more
    assert long.fixed["drafter"] - short.fixed["drafter"] == more


def test_a_window_bounds_what_is_read_not_what_is_held() -> None:
    """Sliding layers keep their K/V under the block ids of all others."""
    slides = cast("BlockContext", Loaded(replace(B16, masks=(Mask(2048, causal=True),) * 4 + (Mask(),))))
    assert pair_terms(ON_GPU, MODEL, slides, LIMIT, (1, 16)) == pair_terms(ON_GPU, MODEL, CONTEXT, LIMIT, (1, 16))


def test_a_step_that_is_not_captured_has_no_graph() -> None:
    captured, eager = (
        pair_terms(replace(ON_GPU, eager=eager), MODEL, CONTEXT, LIMIT, (1, 4, 8, 16)) for eager in (False, True)
    )
    assert captured.fixed["process"] - eager.fixed["process"] > 40 * 36 * (64 << 10)


def test_a_pair_without_a_model_for_drafts_still_has_two_processes() -> None:
    terms = pair_terms(ON_GPU, MODEL, NoContext(), LIMIT, (1, 4, 8, 16))
    assert 0.35 * GIB < terms.fixed["drafter"] < terms.fixed["process"]
    assert terms.fixed["drafter"] < 540 * MIB, "it loads no library for products"
    alone = pair_terms(replace(ON_GPU, drafter_address=""), MODEL, NoContext(), LIMIT, (1,))
    assert "drafter" not in alone.fixed


def test_a_fraction_of_the_gpu_is_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (70 * GIB, 80 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 8 * GIB)
    terms = pair_terms(ON_GPU, MODEL, CONTEXT, LIMIT, (1, 4, 8, 16))
    available = available_bytes(replace(ON_GPU, memory_fraction=0.5), terms, MODEL.device)
    assert available == 40 * GIB
    budget = plan_memory(terms, available, ON_GPU.slots, ON_GPU.block_size)
    assert 0.999 * available < budget.total_bytes <= available
    check_free(budget, MODEL.device)


def test_a_gpu_that_others_hold_is_refused_rather_than_served_from_a_small_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (20 * GIB, 80 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 8 * GIB)
    terms = pair_terms(ON_GPU, MODEL, CONTEXT, LIMIT, (1, 4, 8, 16))
    budget = plan_memory(terms, available_bytes(ON_GPU, terms, MODEL.device), ON_GPU.slots, ON_GPU.block_size)
    with pytest.raises(PacelineError, match="others hold"):
        check_free(budget, MODEL.device)


def test_a_cpu_has_its_weights_and_half_a_gibibyte() -> None:
    model = cast("Target", Loaded(QWEN3_4B, torch.device("cpu"), torch.float32))
    settings = TargetSettings(model="m")
    terms = pair_terms(settings, model, NoContext(), 2048, (1,))
    assert available_bytes(settings, terms, model.device) == terms.fixed_bytes + GIB // 2
    assert available_bytes(replace(settings, memory_bytes=5), terms, model.device) == 5
    assert terms.per_slot["noise"] > 0
    assert "drafter_noise" not in terms.per_slot
    pair = pair_terms(settings, model, cast("BlockContext", Loaded(B16, dtype=torch.float32)), 2048, (1, 4))
    assert pair.per_slot["drafter_noise"] == pair.per_slot["noise"], "a drafter draws with a copy"
    assert "drafter_tables" not in pair.fixed, "it reads the target's own, sealed"


def test_a_hybrid_on_a_cpu_has_its_recurrent_states_beside_them() -> None:
    """Of a layer and slot: a state for each value head, and a ring of rows with two gates for each."""
    delta = Delta(k_heads=16, v_heads=32, k_dim=128, v_dim=128)
    recurrent = LayerSpec(delta, QWEN3_4B.layers[0].ffn)
    hybrid = replace(QWEN3_4B, layers=((recurrent,) * 3 + QWEN3_4B.layers[:1]) * 8)
    model = cast("Target", Loaded(hybrid, torch.device("cpu"), torch.float32))
    settings = TargetSettings(model="m")
    terms = pair_terms(settings, model, NoContext(), 2048, (1, 4, 8))
    slot = 24 * 4 * (32 * 128 * 128 + (3 + 16 + 2 * 8) * (8192 + 64)) + 8
    assert (terms.per_slot["target_slot_states"], terms.fixed["target_states"]) == (slot, slot)
    assert terms.per_token["target_kv"] == 4 * 2 * 8 * 8 * 128, "layers of attention alone have K/V"
    snapshot = 24 * 4 * (32 * 128 * 128 + 3 * (8192 + 64))
    assert terms.fixed["state_snapshots"] == 8 * snapshot, "one for each slot"
    for changed, held in (({"snapshots": 3}, 3 * snapshot), ({"prefix_cache": False}, 0)):
        fixed = pair_terms(replace(settings, **changed), model, NoContext(), 2048, (1, 4, 8)).fixed
        assert fixed.get("state_snapshots", 0) == held
    available = available_bytes(settings, terms, model.device)
    assert available == terms.fixed_bytes + settings.slots * slot + GIB // 2
    assert plan_memory(terms, available, settings.slots, settings.block_size).blocks > 0


def test_widths_chunks_and_the_queue_follow_the_device() -> None:
    assert (ON_GPU.draft_widths, ON_GPU.queued_tokens) == ((1, 4, 6, 8, 12, 16), 524_288)
    assert ON_GPU.fewer_widths == (1, 4, 8, 16)
    assert (ON_GPU.chunk_tokens, ON_GPU.pack_tokens) == (2048, 4096)
    on_cpu = TargetSettings(model="m")
    assert (on_cpu.draft_widths, on_cpu.queued_tokens) == ((1, 4, 8), 65_536)
    assert (on_cpu.chunk_tokens, on_cpu.pack_tokens) == (128, 128)
    set_by_hand = replace(on_cpu, widths=(1, 2), prefill_chunk=64)
    assert set_by_hand.fewer_widths == (1, 2)
    assert (set_by_hand.draft_widths, set_by_hand.chunk_tokens, set_by_hand.pack_tokens) == ((1, 2), 64, 64)


@pytest.mark.parametrize(
    ("slots", "gib", "eager", "fits"),
    [(128, 56, False, True), (128, 20, False, False), (8, 20, False, True), (128, 20, True, True)],
)
def test_more_widths_are_captured_where_their_graphs_are_a_hundredth_of_the_kv(
    slots: int, gib: int, eager: bool, fits: bool
) -> None:
    """Of 128 slots they take some 170 MiB in both processes; steps that are not captured take none."""
    settings = replace(ON_GPU, slots=slots, memory_bytes=gib * GIB, eager=eager)
    sets = settings.draft_widths, settings.fewer_widths
    whole, least = (pair_terms(settings, MODEL, CONTEXT, LIMIT, widths) for widths in sets)
    extra = (whole.fixed_bytes - least.fixed_bytes) / MIB
    assert 40 < extra < 180 or (eager and extra < 10)
    choices = [(widths, ()) for widths in sets]
    assert within(settings, MODEL, CONTEXT, LIMIT, choices) == choices[0 if fits else 1]


def test_prompts_are_packed_in_the_memory_of_the_widest_verify() -> None:
    """So larger packs cost no K/V; 64 slots have room for the most, 16 for what a round with rows may have."""
    widths = (1, 4, 8, 16)
    assert [pack_tokens(replace(ON_GPU, slots=slots), MODEL, widths) for slots in (16, 64, 128)] == [2048, 4096, 4096]
    assert pack_tokens(replace(ON_GPU, slots=128, prefill_chunk=512), MODEL, widths) == 512
    small, large = (replace(ON_GPU, slots=128, prefill_chunk=tokens) for tokens in (512, 0))
    steps = [pair_terms(each, MODEL, CONTEXT, LIMIT, widths).fixed["steps"] for each in (small, large)]
    assert steps[0] == steps[1]


def test_kinds_of_attention_add_up_their_keys_and_values() -> None:
    (own,) = QWEN3_4B.groups
    sliding = LayerSpec(replace(own, window=512, kv_heads=4, head_dim=64), QWEN3_4B.layers[0].ffn)
    mixed = replace(QWEN3_4B, layers=(*QWEN3_4B.layers[:18], *[sliding] * 18))
    model = cast("Target", Loaded(mixed, torch.device("cpu"), torch.float32))
    terms = pair_terms(TargetSettings(model="m"), model, NoContext(), 1024, (1, 4))
    assert terms.per_token["target_kv"] == 4 * 2 * 18 * (8 * 128 + 4 * 64)


def test_layers_with_a_window_have_blocks_of_their_own_where_sequences_are_long() -> None:
    """A slot's hold a window twice and what a round writes; with trees all layers keep all blocks."""
    (own,) = QWEN3_4B.groups
    sliding = LayerSpec(replace(own, window=512, kv_heads=4, head_dim=64), QWEN3_4B.layers[0].ffn)
    mixed = replace(QWEN3_4B, layers=(*QWEN3_4B.layers[:18], *[sliding] * 18))
    model, settings = cast("Target", Loaded(mixed, torch.device("cpu"), torch.float32)), TargetSettings(model="m")
    near, ahead = window_places(settings, model, 8192, (1, 4)), window_ahead(settings, model, (1, 4))
    assert near == settings.slots * (-(-(512 + ahead) // 16) + 1 + 32)
    terms = pair_terms(settings, model, NoContext(), 8192, (1, 4))
    assert terms.per_token["target_kv"] == 4 * 2 * 18 * 8 * 128
    assert terms.fixed["window_kv"] == 4 * 2 * 18 * 4 * 64 * 16 * (near + 1)
    assert [window_places(settings, model, *sizes) for sizes in ((512, (1, 4)), (8192, (1, 4), (8,)))] == [0, 0]
