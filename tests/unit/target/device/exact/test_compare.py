"""Which shapes a comparison names, over sequences whose rows are made up."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest
import torch
from torch import Tensor

from deploy.stack import EMBEDDED
from services.common.model.families import read_target_spec
from services.target.device.exact.compare import Comparison
from services.target.device.exact.shape import Shape, every_shape, lengths, prefill, verify
from services.target.device.shapes import SHORT_VERIFY, PackShape, RunnerSettings, buckets_of, mixed_of, packs_of
from tests.lossless.pairs import made_up_pair

REACH = 4096
PACKS = (PackShape(1, 8), PackShape(4, 8))
SETTINGS = RunnerSettings(slots=3, blocks=900, context_limit=REACH, widths=(1, 2, 4), buckets=(1, 2, 4), packs=PACKS)
CHUNK = 9
"""The sequence of which chunks are computed."""
Fault = Callable[[Shape, int, int], bool]
"""Whether a row is wrong, by shape, sequence and row."""


@dataclass
class MadeUp:
    """A row's prints are its sequence and its place, and others where it is wrong."""

    wrong: Fault = lambda shape, slot, row: False
    seats: int = 3
    reach: int = REACH
    in_order: bool = False
    seated: list[tuple[int, ...]] = field(default_factory=list)
    steps: int = 0

    def seat(self, lengths: Sequence[int]) -> None:
        self.seated.append(tuple(lengths))

    def verify(self, shape: Shape, slots: Sequence[int], offset: int = 0) -> Tensor:
        assert len(slots) <= shape.sequences and offset + shape.span <= 16
        self.steps += 1
        rows = range(offset, offset + shape.span)
        return torch.tensor([[self._prints(shape, slot, row) for row in rows] for slot in slots])

    def prefill(self, pack: Shape, start: int) -> Tensor:
        self.steps += 1
        rows = pack.width + 1 if self.in_order else pack.bucket * pack.width
        return torch.tensor([self._prints(pack, CHUNK, row) for row in range(rows)])

    def in_rounds(self, bucket: int, width: int, chunk: int, start: int) -> Tensor:
        self.steps += -(-chunk // (width if self.in_order else bucket * width))
        return torch.tensor([self._prints(verify(bucket, width), CHUNK, row) for row in range(chunk)])

    def _prints(self, shape: Shape, slot: int, row: int) -> list[int]:
        return [100 * slot + row, 7 * row + self.wrong(shape, slot, row)]


def named(sequences: MadeUp, settings: RunnerSettings = SETTINGS) -> tuple[Shape, ...]:
    return Comparison(sequences, every_shape(settings)).differing()


def test_equal_rows_name_nothing() -> None:
    assert named(MadeUp()) == ()


@pytest.mark.parametrize("width", [2, 4])
def test_any_row_of_a_round_names_its_shape_and_no_other(width: int) -> None:
    for place in ((slot, row) for slot in range(3) for row in range(width)):
        shape = verify(4, width)
        found = named(MadeUp(lambda one, *at, shape=shape, place=place: (one, at) == (shape, place)))
        assert found == (shape,), place


@pytest.mark.parametrize("width", [1, 4])
def test_a_round_for_short_contexts_has_a_name_of_its_own(width: int) -> None:
    """Neither it nor the usual round of its shape is blamed for the other one."""
    settings = replace(SETTINGS, shorts=frozenset({(4, 1), (4, 4)}))
    assert named(MadeUp(), settings) == ()
    for shape in (Shape(SHORT_VERIFY, 4, width), verify(4, 4)):
        for place in ((0, 0), (2, shape.width - 1)):
            wrong = MadeUp(lambda one, *at, shape=shape, place=place: (one, at) == (shape, place))
            assert named(wrong, settings) == (shape,), place
    assert str(Shape(SHORT_VERIFY, 4, width)) == f"short verify 4 x {width}"


@pytest.mark.parametrize("bucket", [2, 4])
def test_a_plain_round_of_many_is_judged_by_one_of_one(bucket: int) -> None:
    """Wider rounds of the bucket, which equal those of one sequence, are not blamed."""
    assert named(MadeUp(lambda shape, slot, row: shape == verify(bucket, 1))) == (verify(bucket, 1),)


@pytest.mark.parametrize("row", [0, 13, 31])
def test_any_row_of_a_chunk_names_it(row: int) -> None:
    assert named(MadeUp(lambda shape, slot, at: shape == prefill(4, 8) and at == row)) == (prefill(4, 8),)


@pytest.mark.parametrize("row", [0, 7, 8])
def test_of_rows_in_order_a_pack_holds_one_segment_and_a_round_behind_it(row: int) -> None:
    sequences = MadeUp(lambda shape, slot, at: shape == prefill(4, 8) and at == row, in_order=True)
    assert named(sequences) == (prefill(4, 8),)
    assert named(MadeUp(in_order=True)) == ()


def test_chunks_are_held_to_a_round_that_was_found_equal() -> None:
    assert named(MadeUp(lambda shape, slot, row: shape == verify(4, 4))) == (verify(4, 4),)


@pytest.mark.parametrize("place", [(0, 0), (2, 0), (CHUNK, 0), (CHUNK, 15)])
def test_rows_of_a_pack_and_those_beside_it_name_it(place: tuple[int, int]) -> None:
    settings = replace(SETTINGS, mixed=PackShape(2, 8, 4))
    shape = prefill(2, 8, 4)
    assert named(MadeUp(), settings) == ()
    assert named(MadeUp(lambda one, *at: (one, at) == (shape, place)), settings) == (shape,)
    assert (str(shape), shape.rows, shape.counts) == ("prefill 2 x 8 + 4", 20, (20, 6))


def test_only_some_shapes_are_compared_again() -> None:
    sequences = MadeUp(lambda shape, slot, row: shape in (verify(2, 4), prefill(1, 8)))
    comparison = Comparison(sequences, every_shape(SETTINGS))
    assert comparison.differing() == (prefill(1, 8), verify(2, 4))
    assert comparison.differing([verify(2, 2), prefill(1, 8)]) == (prefill(1, 8),)


def test_lengths_lie_around_tiles_and_splits_and_before_the_limit() -> None:
    assert lengths(40_960, 4) == (62, 65, 1022, 1025, 8190, 8193, 40_956)
    assert lengths(REACH, 4) == (62, 65, 1022, 1025, REACH - 4)
    assert lengths(100, 4) == (62, 65, 96)
    assert lengths(40, 4) == (36,)
    sequences = MadeUp()
    named(sequences)
    for bucket in (1, 2, 3):
        seen = {length for seated in sequences.seated if len(seated) == bucket for length in seated}
        assert seen == set(lengths(REACH, 4))


SPEC = read_target_spec(EMBEDDED / "target")
DRAFTED = (1, 4, 8, 16)


@pytest.mark.parametrize(
    ("slots", "widths", "most"),
    [(8, DRAFTED, 1000), (128, DRAFTED, 1000), (1, DRAFTED, 1000), (128, (1,), 1000), (4, (1,), 1000), (1, (1,), 3000)],
)
def test_a_check_takes_few_steps(slots: int, widths: tuple[int, ...], most: int) -> None:
    """A step of Qwen3-4B takes some 3 ms on an H200, and one of 128 sequences some 10."""
    packs, buckets = packs_of(4096 if slots > 32 else 2048, SPEC, torch.device("cuda")), buckets_of(slots)
    settings = RunnerSettings(
        slots=slots, blocks=9999, context_limit=32768, widths=widths, buckets=buckets, packs=packs,
        mixed=mixed_of(packs, buckets[-1], SPEC, torch.device("cuda")),
    )  # fmt: skip
    sequences = MadeUp(seats=slots, reach=32768)
    assert named(sequences, settings) == ()
    assert sequences.steps <= most


def test_a_check_of_rows_in_order_takes_few_steps() -> None:
    """Recurrent states leave a chunk to one slot."""
    spec = read_target_spec(made_up_pair(family="qwen3_5_text").target)
    settings = RunnerSettings(
        slots=32, blocks=9999, context_limit=32768, widths=DRAFTED, buckets=buckets_of(32),
        packs=packs_of(2048, spec, torch.device("cuda")),
    )  # fmt: skip
    sequences = MadeUp(seats=32, reach=32768, in_order=True)
    assert named(sequences, settings) == ()
    assert sequences.steps <= 1200
