"""Rounds of a few sequences are captured once more for short contexts, and replayed where no row can see more."""

from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch

from services.common.kernels.span_attention.cut import cut_span
from services.common.kernels.span_attention.splits import MOST_SPLITS
from services.common.model.spec import Attention, Dense, LayerSpec, ModelSpec, Rope
from services.target.device import steps
from services.target.device.shapes import SHORT_VERIFY, VERIFY, RunnerSettings, buckets_of, shorts_of
from services.target.device.steps import kind_of
from tests.lossless.pairs import made_up_pair
from tests.lossless.proposers import Perfect
from tests.lossless.rig import Rig, RigSettings
from tests.unit.target.core.specs import GREEDY, PROCESSED, prompt, request

WIDTHS, KV_HEADS, NARROW, WIDE = (1, 4, 8, 16), 8, 256, 512
HEADS = Attention(heads=32, kv_heads=KV_HEADS, head_dim=128, rope=Rope(1e6))
LAYER = LayerSpec(HEADS, Dense(9728))
SPEC = ModelSpec(
    vocab_size=300, hidden_size=2560, max_positions=4096, norm_eps=1e-6, layers=(LAYER,), tied=True, eos_token_ids=(0,)
)


def test_one_program_takes_a_short_context_of_five_to_eight_sequences_of_many_rows() -> None:
    for sequences in range(1, 129):
        for width in WIDTHS:
            usual, short = (cut_span(4 * width, sequences * KV_HEADS, NARROW, short) for short in (False, True))
            if 5 <= sequences <= 8 and width > 4:
                assert (usual.programs, usual.stages, short.programs, short.stages) == (132 // (8 * sequences), 5, 1, 7)
            else:
                assert short == usual
            assert cut_span(4 * width, sequences * KV_HEADS, WIDE, short=True) == cut_span(
                4 * width, sequences * KV_HEADS, WIDE
            )


def test_programs_share_the_contexts_of_few_rows_at_all_lengths() -> None:
    """The parts that they leave are small, so that merging them takes less than one program's tiles."""
    for sequences, width, short in product(range(2, 9), (1, 4), (False, True)):
        assert cut_span(4 * width, sequences * KV_HEADS, NARROW, short) == (
            16,
            MOST_SPLITS // 2 if sequences > 4 else MOST_SPLITS,
            3,
            2,
        )


def test_what_is_cut_otherwise_is_captured_once_more_on_a_gpu() -> None:
    def found(spec: ModelSpec, dtype: torch.dtype = torch.bfloat16, device: str = "cuda") -> frozenset[tuple[int, int]]:
        return shorts_of(buckets_of(128), WIDTHS, spec, dtype, torch.device(device))

    assert found(SPEC) == {(1, 1), *product((2, 4, 8), (8, 16))}, "a row alone has a kernel of its own"
    wide = replace(HEADS, heads=16, kv_heads=4, head_dim=256)
    assert found(replace(SPEC, layers=(replace(LAYER, mixer=wide),))) == {(1, 8), (1, 16)}
    assert found(SPEC, torch.float32) == frozenset()
    assert found(SPEC, device="cpu") == frozenset()
    coded = shorts_of(buckets_of(128), WIDTHS, SPEC, torch.bfloat16, torch.device("cuda"), coded=True)
    assert coded == set(product((1, 2, 4, 8), WIDTHS)), "long contexts of codes have a kernel of their own"


@pytest.mark.parametrize(("bucket", "most"), [(1, 1024), (4, 1024), (8, 1280)])
def test_what_a_round_reaches_decides(bucket: int, most: int) -> None:
    settings = RunnerSettings(8, 99, 4096, shorts=frozenset({(bucket, 4)}))
    kinds = [kind_of(settings, (bucket, 4), 4, reach) for reach in (1, most, most + 1)]
    assert kinds == [SHORT_VERIFY, SHORT_VERIFY, VERIFY]
    assert kind_of(settings, (bucket, 8), 8, 1) == kind_of(settings, (2, 4), 4, 1) == VERIFY


@pytest.mark.parametrize("look_ahead", [0, 2])
def test_no_short_round_reaches_further(look_ahead: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds in flight have grown what the host has read; on the device no length may be beyond the bound."""
    pair, edge, width = made_up_pair(), 40, 4
    specs = [
        request(f"r{n}", prompt(n, 20 + 7 * n), 24, (GREEDY, PROCESSED)[n % 2 and not look_ahead]) for n in range(4)
    ]
    settings = RigSettings(dtype=torch.float64, width=width, slots=2, buckets=(1, 2), look_ahead=look_ahead)
    with Rig(pair.target, pair.drafter, settings) as usual:
        texts = [done.tokens for done in usual.run(specs)]
    truth = {spec.request_id: [*spec.token_ids, *text] for spec, text in zip(specs, texts, strict=True)}
    shorts = frozenset({(2, 1), (2, width)})
    monkeypatch.setattr("tests.lossless.rig.RunnerSettings", partial(RunnerSettings, shorts=shorts))
    monkeypatch.setattr(steps, "SHORT_POSITIONS", edge)
    seen: list[tuple[str, int]] = []
    with Rig(pair.target, pair.drafter, settings, lambda rig: Perfect(rig, truth)) as rig:
        rig.runner.look_ahead = look_ahead
        run = rig.runner.steps.run_verify

        def noted(bucket: int, width: int, mode: Any, kind: str) -> Any:
            slots = rig.runner.steps.round.rows_B[:bucket].long()
            seen.extend([(kind, int(rig.runner.pool.state.slots.length_S[slots].max()) + width)] * (bucket == 2))
            return run(bucket, width, mode, kind)

        monkeypatch.setattr(rig.runner.steps, "run_verify", noted)
        assert [done.tokens for done in rig.run(specs)] == texts
        assert rig.runner.graphs().recaptures == 0
    most = {kind: max(reach for other, reach in seen if other == kind) for kind in (VERIFY, SHORT_VERIFY)}
    least = min(reach for kind, reach in seen if kind == VERIFY)
    assert most[SHORT_VERIFY] <= edge < most[VERIFY]
    assert least > edge - look_ahead * width
