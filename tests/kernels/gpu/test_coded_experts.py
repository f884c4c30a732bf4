"""Experts that are codes of e4m3: the bits of those that are the numbers which the codes mean."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from services.common.kernels.experts.kernel import ExpertStack, multiply_experts, route
from services.common.kernels.experts.scales import ExpertScales, are_taken
from services.common.kernels.experts.tiling import Tiling
from services.common.kernels.linear.packed_weight import Codes, dealt, nearest_codes
from services.common.model import load_target
from tests.kernels.gpu.devices import DEVICE, DTYPES, INTERPRETED, close, randn
from tests.kernels.gpu.test_experts import COUNT, EPS, TOP_K, rows_of
from tests.kernels.gpu.test_hybrid_model import PLAIN, run
from tests.support.packed_checkpoints import LAYOUTS, pack_checkpoint
from tests.support.tiny_checkpoints import TinyShape, write_tiny

HIDDEN, INNER = 256, 128
CUTS = [Tiling(16, band=64, depth=256 if INTERPRETED else 128, more=16)]
CUTS += [] if INTERPRETED else [Tiling(32), Tiling(64, band=128, stages=3), Tiling(128, band=256, warps=8, stages=3)]
KINDS = ("blocks", "lines", "tensor", "groups of lines")


def codes_of(weight_FD: Tensor, kind: str, seed: int) -> Codes:
    """Codes near to a weight, with scales as files have them; those of groups are any numbers."""
    outputs, depth = weight_FD.shape
    if kind == "blocks":
        found = nearest_codes(weight_FD)
        assert found is not None
        return found
    if kind == "groups of lines":
        scale_FG = randn(outputs, depth // 128, seed=seed).abs() * 0.003
    else:
        scale_FG = weight_FD.float().abs().amax(1, keepdim=True) / 448
        scale_FG = scale_FG.amax(0, keepdim=True).expand(outputs, 1) if kind == "tensor" else scale_FG
    wide_FD = weight_FD.float() / scale_FG.repeat_interleave(depth // scale_FG.shape[1], 1)
    return Codes(wide_FD.clamp(-448, 448).to(torch.float8_e4m3fn), scale_FG)


def stacks(kind: str, dtype: torch.dtype) -> tuple[ExpertStack, ExpertStack]:
    """Experts as codes, and as the numbers that these mean."""
    coded, scales, numbers = [], [], []
    for seed, (outputs, depth) in enumerate(((2 * INNER, HIDDEN), (HIDDEN, INNER))):
        parts = [
            codes_of(randn(outputs, depth, seed=9 * seed + one) * 0.2, kind, 99 * seed + one) for one in range(COUNT)
        ]
        assert all(map(are_taken, parts))
        coded.append(torch.stack([dealt(part.codes_FD).flatten(1) for part in parts]))
        scales.append(ExpertScales.of([part.scale_FG for part in parts], torch.device(DEVICE)))
        numbers.append(scales[-1].widened(coded[-1]).to(dtype))
        for part, number_FD in zip(parts, numbers[-1], strict=True):
            scale_FD = part.scale_FG.repeat_interleave(depth // part.scale_FG.shape[1], 1)
            assert torch.equal(number_FD, (part.codes_FD.float() * scale_FD).bfloat16().to(dtype))
    return ExpertStack(coded[0], coded[1], scales=(scales[0], scales[1])), ExpertStack(numbers[0], numbers[1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 40])
def test_parts_have_the_bits_of_numbers(dtype: torch.dtype, kind: str, rows: int) -> None:
    """In every cut, beside padding."""
    coded, numbers = stacks(kind, dtype)
    normed, live_T = rows_of(rows, HIDDEN, dtype), torch.arange(rows, device=DEVICE) % 5 != 1
    gates_TF = randn(rows, 16, seed=8)
    for cut in CUTS:
        # What routes count tiles in serves one product.
        got_TKD, expected_TKD = (
            multiply_experts(normed, route(gates_TF, live_T, COUNT, TOP_K, True), own, EPS, cut)
            for own in (coded, numbers)
        )
        assert torch.equal(got_TKD[live_T], expected_TKD[live_T]), cut


def test_scales_are_kept_as_few_as_say_the_same() -> None:
    """One for 128 lines of blocks, one for each line where lines differ, and none is shared by two experts."""
    shapes = {}
    for kind in KINDS:
        scales = stacks(kind, torch.float32)[0].scales
        assert scales is not None
        shapes[kind] = [(tuple(one.table_EGL.shape), one.shift, one.short) for one in scales]
    assert shapes == {
        "blocks": [((COUNT, 2, 2), 7, True), ((COUNT, 1, 2), 7, True)],
        "lines": [((COUNT, 1, 2 * INNER), 0, False), ((COUNT, 1, HIDDEN), 0, False)],
        "tensor": [((COUNT, 1, 2), 7, False), ((COUNT, 1, 2), 7, False)],
        "groups of lines": [((COUNT, 2, 2 * INNER), 0, False), ((COUNT, 1, HIDDEN), 0, False)],
    }


@pytest.mark.parametrize(
    ("depth", "groups", "taken"), [(256, 2, True), (256, 1, True), (192, 1, False), (256, 4, False)]
)
def test_groups_of_other_sizes_are_left_to_numbers(depth: int, groups: int, taken: bool) -> None:
    """So are scales that would be infinite where they are raised."""
    codes_FD = torch.zeros(16, depth, dtype=torch.float8_e4m3fn)
    assert not are_taken(Codes(codes_FD, torch.full((16, 1), 128.0)))
    assert are_taken(Codes(codes_FD, torch.ones(16, groups))) is taken
    assert not are_taken(Codes(codes_FD.view(torch.uint8), torch.ones(16, groups), torch.zeros(16, groups)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_model_of_codes_has_the_bits_of_its_twin_wherever_experts_lie(
    dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the device, some in host memory, and when they have changed places; scales stay where they are.

    What a device may hold is counted in numbers, so it has room for as many codes as a number has bytes.
    """
    near = dtype.itemsize
    monkeypatch.setattr("services.common.model.target_reading.takes_codes", lambda device, dtype: True)
    shape = TinyShape(vocab=270, hidden=128, inner=128, layers=1, heads=1, kv_heads=1, draft_layers=1, taps=(0,))
    changes = {"num_experts": near + 2, "num_experts_per_tok": 2, "moe_intermediate_size": 128}
    folder = write_tiny(tmp_path, 3, shape, std=0.1, family="qwen3_moe", dtype=torch.bfloat16, changes=changes).target
    pack_checkpoint(folder, tmp_path / "twin", LAYOUTS["fp8-bf16"])
    cuts, codes = ((5, 4, True), PLAIN), {8: 0}
    expected, _ = run(load_target(tmp_path / "twin", dtype, DEVICE), cuts)
    whole = load_target(folder, dtype, DEVICE, codes=codes)
    found, _ = run(whole, cuts)
    if INTERPRETED:  # which adds up a step's columns as its library likes
        close(found, expected)
    else:
        assert torch.equal(found, expected)
    (own,) = whole.mixtures
    held = load_target(folder, dtype, DEVICE, codes=codes, expert_bytes=near * own.expert_bytes + 7)
    (some,) = held.mixtures
    assert some.cold is not None and some.scales is not None and some.cold.resident == near
    assert whole.weight_bytes - held.weight_bytes == some.cold.nbytes == 2 * own.expert_bytes
    assert torch.equal(run(held, cuts)[0], found)
    some.cold.exchange(near, 0, (torch.empty_like(some.gate_up_EFD[0]), torch.empty_like(some.down_EDF[0])))
    assert torch.equal(run(held, cuts)[0], found)
