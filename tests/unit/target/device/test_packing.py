"""Which rows of a pack belong to which prompt, and which shape holds them: integers alone."""

import pytest
import torch

from deploy.stack import EMBEDDED
from services.common.model.families import read_target_spec
from services.target.core.plan import Chunk, Plan
from services.target.device.packing import Segment, mixed, packed
from services.target.device.shapes import PackShape, WholePack, mixed_of, packs_of
from tests.lossless.pairs import made_up_pair

SHAPES = tuple(PackShape(count, 4) for count in (1, 2, 4))
IDS = tuple(range(100, 132))
SPEC = read_target_spec(EMBEDDED / "target")


def chunk(slot: int, start: int, count: int, last: bool = False) -> Chunk:
    return Chunk(slot, 1, start, IDS[:count], last)


def test_prompts_lie_side_by_side_in_segments_of_their_own() -> None:
    (pack,) = packed([chunk(3, 8, 6, last=True), chunk(0, 0, 2), chunk(5, 16, 4, last=True)], SHAPES)
    assert pack.shape == PackShape(4, 4)
    assert pack.segments == [
        Segment(3, 8, IDS[:4]),
        Segment(3, 12, IDS[4:6], place=0),
        Segment(0, 0, IDS[:2]),
        Segment(5, 16, IDS[:4], place=1),
    ]


def test_chunks_that_no_shape_holds_together_run_one_by_one_with_their_places() -> None:
    packs = packed([chunk(1, 0, 5, last=True), chunk(2, 0, 3, last=True)], (PackShape(1, 4), PackShape(1, 8)))
    assert [pack.shape for pack in packs] == [PackShape(1, 8), PackShape(1, 4)]
    assert [pack.segments for pack in packs] == [[Segment(1, 0, IDS[:5], 0)], [Segment(2, 0, IDS[:3], 1)]]


def test_a_whole_segment_has_a_prompt_of_its_own() -> None:
    """So it is for recurrent states, which pass through a prompt's rows in order."""
    shapes = (PackShape(1, 4), PackShape(1, 16), WholePack(2, 8), WholePack(4, 4))
    together = packed([chunk(0, 0, 7, last=True), chunk(1, 0, 5)], shapes)
    assert [(pack.shape, pack.segments) for pack in together] == [
        (PackShape(2, 8), [Segment(0, 0, IDS[:7], place=0), Segment(1, 0, IDS[:5])])
    ]
    in_turn = packed([chunk(0, 0, 7), chunk(0, 7, 3), chunk(1, 0, 9)], shapes)
    assert [(pack.shape, len(pack.segments)) for pack in in_turn] == [
        (PackShape(1, 16), 1),
        (PackShape(1, 4), 1),
        (PackShape(1, 16), 1),
    ]
    some = packed([chunk(slot, 0, 8) for slot in range(5)], shapes)
    assert [len(pack.segments) for pack in some] == [2, 2, 1]


def test_the_fewest_rows_and_then_the_fewest_segments_are_taken() -> None:
    shapes = (PackShape(1, 4), PackShape(1, 16), PackShape(4, 4), PackShape(2, 8))
    assert packed([chunk(0, 0, 16)], shapes)[0].shape == PackShape(1, 16)
    assert packed([chunk(0, 0, 7), chunk(1, 0, 8)], shapes)[0].shape == PackShape(2, 8)
    assert packed([chunk(0, 0, 3), chunk(1, 0, 9)], shapes)[0].shape == PackShape(4, 4)
    assert packed([], shapes) == []
    with pytest.raises(ValueError, match="empty"):
        packed([chunk(0, 0, 17)], shapes)


def test_shapes_follow_the_device() -> None:
    on_cpu = packs_of(128, SPEC, torch.device("cpu"))
    assert {PackShape(4, 32), PackShape(2, 64), PackShape(1, 96), PackShape(1, 128)} < set(on_cpu)
    assert max(pack.rows for pack in on_cpu) == 128
    on_gpu = packs_of(4096, SPEC, torch.device("cuda"))
    assert {pack.width for pack in on_gpu} == {64}
    assert [pack.rows for pack in on_gpu] == [64, 256, 512, 1024, 1536, 2048, 2560, 3072, 3584, 4096]
    assert packs_of(100, SPEC, torch.device("cuda")) == (PackShape(1, 64), PackShape(2, 64))


def test_a_hybrid_has_packs_of_one_prompt_and_on_a_gpu_of_several() -> None:
    spec = read_target_spec(made_up_pair(family="qwen3_5_text").target)
    assert packs_of(128, spec, torch.device("cpu")) == (PackShape(1, 32), PackShape(1, 128))
    on_gpu = packs_of(2048, spec, torch.device("cuda"))
    assert [pack for pack in on_gpu if not pack.whole] == [PackShape(1, width) for width in (32, 128, 512, 2048)]
    assert {WholePack(2, 128), WholePack(16, 128), WholePack(4, 512)} < set(on_gpu)
    assert max(pack.rows for pack in on_gpu) == 2048


@pytest.mark.parametrize(
    ("slots", "most", "mixed"),
    [(128, 4096, PackShape(62, 64, 128)), (8, 2048, PackShape(31, 64, 8)), (128, 448, None), (1, 128, None)],
)
def test_rows_take_the_room_of_a_quarter_of_the_largest_pack_at_most(
    slots: int, most: int, mixed: PackShape | None
) -> None:
    on_gpu = torch.device("cuda")
    found = mixed_of(packs_of(most, SPEC, on_gpu), slots, SPEC, on_gpu)
    assert found == mixed
    assert found is None or found.rows <= most
    hybrid = read_target_spec(made_up_pair(family="qwen3_5_text").target)
    assert mixed_of(packs_of(most, hybrid, on_gpu), slots, hybrid, on_gpu) is None
    assert mixed_of(packs_of(most, SPEC, torch.device("cpu")), slots, SPEC, torch.device("cpu")) is None


@pytest.mark.parametrize(
    ("tokens", "rows", "width", "together"),
    [(24, (3,), 1, True), (21, (3,), 1, True), (16, (3,), 1, False), (28, (3,), 1, False), (24, (), 1, False),
     (24, (3,), 4, False)],
)  # fmt: skip
def test_plain_rows_lie_beside_a_pack_that_is_nearly_full(
    tokens: int, rows: tuple[int, ...], width: int, together: bool
) -> None:
    """Six of eight segments are left. A prompt that fits the next smaller pack is computed apart."""
    shapes, shape = (PackShape(4, 4), PackShape(8, 4)), PackShape(6, 4, 8)
    plan = Plan(1, width, rows, 8, (chunk(0, 0, tokens, last=True),), (), (), ())
    packs = packed(plan.chunks, shapes)
    found = mixed(plan, packs, shape)
    assert found == (packs[0]._replace(shape=shape) if together else None)
