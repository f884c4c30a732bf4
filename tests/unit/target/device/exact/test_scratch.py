"""The check over a real runner's steps, in float64 on the CPU: it finds what is planted, and leaves no trace."""

from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from services.common.kernels.linear import allowed
from services.common.kernels.nodes import Nodes
from services.common.model import Target
from services.common.model.drafters.context import BlockContext
from services.target.device.context import Pool
from services.target.device.exact.check import ExactCheck, ExactMode
from services.target.device.exact.prints import Prints
from services.target.device.exact.shape import verify
from services.target.device.exact.subject import CapturedSteps
from services.target.device.exact.verdict import VerdictFile
from services.target.device.runner import Runner
from tests.lossless.pairs import made_up_pair
from tests.lossless.rig import Rig, RigSettings
from tests.unit.target.core.specs import SAMPLED, prompt, request

SETTINGS = RigSettings(
    width=4, slots=2, buckets=(1, 2), pack_tokens=16, context_limit=112, blocks=40, dtype=torch.float64
)
EDGES = (64, 96)


@pytest.fixture
def rig() -> Iterator[Rig]:
    pair = made_up_pair()
    with Rig(pair.target, pair.drafter, SETTINGS) as made:
        yield made


def checked(rig: Rig) -> list[str]:
    return [str(shape) for shape in CapturedSteps(rig.runner.pool, rig.runner.steps, EDGES).differing()]


def test_a_real_pair_passes_and_nothing_remains_of_the_check(rig: Rig) -> None:
    before, random, graphs = state(rig), torch.get_rng_state(), rig.runner.graphs()
    assert checked(rig) == []
    assert all(torch.equal(now, then) for now, then in zip(state(rig), before, strict=True))
    assert torch.equal(torch.get_rng_state(), random)
    after = rig.runner.graphs()
    assert (after.captures, after.recaptures) == (graphs.captures, 0)
    assert after.replays - graphs.replays > 40
    spec = request("a", prompt(3, 20), 12, SAMPLED)
    with Rig(made_up_pair().target, made_up_pair().drafter, SETTINGS) as fresh:
        assert rig.run([spec])[0].tokens == fresh.run([spec])[0].tokens


def state(rig: Rig) -> list[Tensor]:
    """Copies of all that a request could meet; the pad block is never read."""
    pool = rig.runner.pool
    caches = [kv[:, :, 1:] for kv in (*pool.states.paged, pool.draft_kv)]
    slots = [
        value
        for field in fields(pool.state.slots)
        if isinstance(value := getattr(pool.state.slots, field.name), Tensor)
    ]
    mapped = [getattr(pool.mapped, field.name) for field in fields(pool.mapped)]
    inputs = [pool.state.block_table_SN, pool.state.epoch_S, pool.mailbox_SK, pool.tag_S3]
    inputs += [] if pool.states.places_N is None else [pool.states.places_N]
    rounds = [rig.runner.steps.round.rows_B, rig.runner.steps.round.expected_2, *rig.runner.steps.pack.tensors]
    return [tensor.clone() for tensor in (*caches, *slots, *mapped, *inputs, *rounds)]


def test_rows_of_trees_are_compared_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they stand at other places than their depths they differ, and nothing remains of the check."""
    pair = made_up_pair()
    with Rig(pair.target, pair.drafter, replace(SETTINGS, nodes=True)) as rig:
        parents_SK = rig.runner.pool.parents_SK
        assert parents_SK is not None
        before = [*state(rig), parents_SK.clone()]
        assert checked(rig) == []
        assert all(map(torch.equal, [*state(rig), parents_SK], before))
        read = Pool.read_nodes

        def misplaced(self: Pool, rows_B: Tensor, drafts_BK: Tensor, nodes: Nodes) -> None:
            read(self, rows_B, drafts_BK, nodes)
            nodes.depths_BW.copy_(torch.arange(nodes.depths_BW.shape[1]))

        monkeypatch.setattr(Pool, "read_nodes", misplaced)
        assert checked(rig) == ["trees 1 x 4", "trees 2 x 4"]


@pytest.mark.parametrize("family", ["laguna", "gemma4_text"])
@pytest.mark.parametrize("slots", [1, 2])
def test_windows_have_fewer_places_than_the_check_has_blocks(
    family: str, slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sequences are longer than all of them; a fault in a layer with a window is found, and nothing remains."""
    pair, attend = made_up_pair(family=family), Target.forward
    settings = replace(SETTINGS, slots=slots, buckets=(1, 2)[:slots], context_limit=240, blocks=80)
    with Rig(pair.target, pair.drafter, settings) as made:
        pool = made.runner.pool
        assert 0 < pool.settings.near < settings.context_limit // pool.settings.block_size
        for kv in (*pool.states.paged, pool.draft_kv):
            kv.zero_()
        before = state(made)
        assert checked(made) == []
        assert all(torch.equal(now, then) for now, then in zip(state(made), before, strict=True))
        near = min(pool.states.paged, key=lambda kv: kv.shape[2])

        def spoilt(target: Target, ids_T: Tensor, rows: Any, states: Any, *rest: Any) -> tuple[Tensor, Tensor]:
            outcome = attend(target, ids_T, rows, states, *rest)
            if len(ids_T) == 4 * slots:
                near.add_(1e-3)
            return outcome

        monkeypatch.setattr(Target, "forward", spoilt)
        assert f"verify {slots} x 4" in checked(made)


@pytest.fixture
def hybrid() -> Iterator[Rig]:
    pair = made_up_pair(family="qwen3_5_text")
    with Rig(pair.target, pair.drafter, SETTINGS) as made:
        yield made


MIXED = replace(SETTINGS, pack_tokens=64, mixed=True)


def test_a_pack_with_rows_beside_it_passes_and_nothing_remains_of_the_check() -> None:
    pair = made_up_pair()
    with Rig(pair.target, pair.drafter, MIXED) as made:
        before = state(made)
        assert checked(made) == []
        assert all(torch.equal(now, then) for now, then in zip(state(made), before, strict=True))
        steps, captures = CapturedSteps(made.runner.pool, made.runner.steps), made.runner.graphs().captures
        assert str(steps.shapes[-1]) == "prefill 3 x 16 + 2"
        steps.renew([steps.shapes[-1]])
        assert made.runner.graphs().captures == captures + 1


@pytest.mark.parametrize("part", [0, 1])
def test_codes_and_exponents_of_keys_and_values_are_compared(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a round of four rows leaves wrong in one head's codes or exponent is found."""
    forward, pair = Target.forward, made_up_pair()
    with Rig(pair.target, pair.drafter, replace(SETTINGS, coded=True)) as made:
        before, paged = state(made), made.runner.pool.states.paged
        assert len(paged) == 2
        assert checked(made) == []
        assert all(torch.equal(now, then) for now, then in zip(state(made), before, strict=True))

        def spoilt(target: Target, ids_T: Tensor, rows: Any, states: Any, *rest: Any) -> tuple[Tensor, Tensor]:
            outcome = forward(target, ids_T, rows, states, *rest)
            if len(ids_T) == 4:
                paged[part].flatten(2, 3)[-1, 1, rows.slots_T[2]] += 1
            return outcome

        monkeypatch.setattr(Target, "forward", spoilt)
        assert "verify 1 x 4" in checked(made)


@pytest.mark.parametrize("row", [0, 40, 48, 49])
def test_a_wrong_row_of_a_pack_or_beside_it_is_found(row: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows 48 and 49 lie beside the pack."""
    write, pair = BlockContext.write, made_up_pair()

    def spoilt(context: BlockContext, features_TF: Tensor, *rest: Any) -> None:
        if len(features_TF) == 50:
            features_TF = features_TF.clone()
            features_TF[row] += 0.1
        write(context, features_TF, *rest)

    with Rig(pair.target, pair.drafter, MIXED) as made:
        monkeypatch.setattr(BlockContext, "write", spoilt)
        assert checked(made) == ["prefill 3 x 16 + 2"]


def test_a_hybrid_passes_and_nothing_remains_of_the_check(hybrid: Rig) -> None:
    before = [*state(hybrid), *hybrid.runner.pool.states.tensors[1:]]
    for states in before[-3:-1]:
        states.zero_()
    before = [tensor.clone() for tensor in before]
    assert checked(hybrid) == []
    now = [*state(hybrid), *hybrid.runner.pool.states.tensors[1:]]
    assert all(torch.equal(one, then) for one, then in zip(now, before, strict=True))


def test_a_pack_of_a_hybrid_may_be_as_long_as_a_text() -> None:
    """The row behind the pack is one that rounds reach, too."""
    pair = made_up_pair(family="qwen3_5_text")
    with Rig(pair.target, pair.drafter, replace(SETTINGS, slots=1, buckets=(1,), context_limit=16)) as made:
        assert checked(made) == []


@pytest.mark.parametrize(("rows", "named"), [(8, "verify 2 x 4"), (16, "prefill 1 x 16")])
@pytest.mark.parametrize("spoilt", [1, 2], ids=["state", "ring"])
def test_what_one_shape_leaves_wrong_in_a_slot_is_found(
    hybrid: Rig, rows: int, named: str, spoilt: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows themselves are right; what they leave is read by rounds behind them."""
    forward = Target.forward

    def spoils(model: Target, ids_T: Tensor, spans: Any, states: Any, *rest: Any) -> Any:
        outcome = forward(model, ids_T, spans, states, *rest)
        if len(ids_T) == rows:
            states.tensors[spoilt].mul_(1.1)
        return outcome

    monkeypatch.setattr(Target, "forward", spoils)
    assert named in checked(hybrid)


def test_scores_of_one_shape_are_found(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = Target.logits

    def spoilt(model: Target, hidden_TD: Tensor, *rest: Any) -> Tensor:
        result = scores(model, hidden_TD, *rest)
        if len(hidden_TD) == 8:
            result[-1, -1] *= 1.1
        return result

    monkeypatch.setattr(Target, "logits", spoilt)
    assert checked(rig) == ["verify 2 x 4"]


def test_a_start_falls_back_and_the_next_one_remembers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores are wrong as long as the library may multiply eight rows by the head."""
    scores, pair = Target.logits, made_up_pair()

    def spoilt(model: Target, hidden_TD: Tensor, *rest: Any) -> Tensor:
        outputs, depth = model.lm_head_VD.shape
        by_library = allowed.allowed(outputs, depth, len(hidden_TD))
        return scores(model, hidden_TD, *rest) * (1.1 if len(hidden_TD) == 8 and by_library else 1.0)

    monkeypatch.setattr(Target, "logits", spoilt)
    warm_up, found = Runner.warm_up, []
    for _ in range(2):
        allowed.allow_all()
        check = ExactCheck(ExactMode.FALLBACK, VerdictFile("key", tmp_path))
        monkeypatch.setattr(Runner, "warm_up", lambda runner, check=check: warm_up(runner, check))
        with Rig(pair.target, pair.drafter, SETTINGS) as rig:
            products = {*rig.model.products, *rig.context.products}
            assert allowed.refused() == tuple(sorted((*product, 8) for product in products))
            found.append((check.found.verdict, check.found.kept, rig.runner.graphs().captures))
    allowed.allow_all()
    (first, kept, captures), (again, kept_again, captures_again) = found
    assert first is not None and first == again
    assert (first.mended, first.differing, kept, kept_again) == (("verify 2 x 4",), (), False, True)
    assert captures == captures_again + 2, "a shape is captured again in both modes, and none at the second start"


def test_plain_rounds_are_captured_again_with_their_first_tokens(rig: Rig) -> None:
    """Both multiply as many rows by the head."""
    steps, counts = CapturedSteps(rig.runner.pool, rig.runner.steps), [rig.runner.graphs().captures]
    for shape in (verify(2, 1), verify(2, 4), steps.shapes[-1]):
        steps.renew([shape])
        counts.append(rig.runner.graphs().captures)
    assert [after - before for before, after in pairwise(counts)] == [4, 2, 1]


def test_the_context_of_a_chunk_is_found(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    write = BlockContext.write

    def spoilt(context: BlockContext, features_TF: Tensor, *rest: Any) -> None:
        write(context, features_TF + 0.1 if len(features_TF) == 16 else features_TF, *rest)

    monkeypatch.setattr(BlockContext, "write", spoilt)
    assert checked(rig) == ["prefill 1 x 16"]


def test_the_drafts_of_a_round_are_read(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without their tokens rows behind the anchor would be others."""
    monkeypatch.setattr("services.target.device.exact.scratch.Scratch._tags", lambda self: torch.zeros(1))
    assert checked(rig) == ["verify 1 x 4", "verify 2 x 4"]


def test_a_pool_without_room_is_told() -> None:
    pair = made_up_pair()
    with Rig(pair.target, pair.drafter, RigSettings(blocks=1, slots=1, buckets=(1,))) as rig:
        assert "blocks" in CapturedSteps(rig.runner.pool, rig.runner.steps, EDGES).incomparable


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_print_tells_a_row_by_its_bits(dtype: torch.dtype) -> None:
    prints, rows = Prints(torch.device("cpu")), torch.randn(3, 50, generator=torch.Generator().manual_seed(1)).to(dtype)
    same = prints.of(rows)
    assert torch.equal(prints.of(rows[1:]), same[1:])
    for column in (0, 49):
        other = rows.clone()
        other[1, column] = torch.nextafter(rows[1, column], rows[1, column] + 1)
        assert (prints.of(other) == same).tolist() == [True, False, True]
    prints.of(torch.ones(2, 70, dtype=dtype))
    assert torch.equal(prints.of(rows), same), "rows of another length change nothing"
    swapped = rows[:, torch.arange(49, -1, -1)]
    assert not (prints.of(swapped) == same).any()
