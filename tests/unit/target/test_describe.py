"""What Describe tells of the check at start."""

from services.target.describe import exactness_to_pb
from services.target.device.exact.check import ExactMode, Exactness
from services.target.device.exact.verdict import Verdict

MENDED, LEFT = ("verify 8 x 16",), ("prefill 8 x 64", "prefill 32 x 64")


def test_shapes_that_differ_are_named_and_counted() -> None:
    found = Exactness(mode=ExactMode.FALLBACK, verdict=Verdict(shapes=9, mended=MENDED, differing=LEFT), kept=True)
    told = exactness_to_pb(found)
    assert (told.mode, told.unchecked, told.shapes, told.kept) == ("fallback", "", 9, True)
    assert (tuple(told.mended), tuple(told.differing)) == (MENDED, LEFT)
    assert found.counts == {"equal": 6, "mended": 1, "differing": 2}


def test_a_target_that_did_not_look_says_why() -> None:
    found = Exactness(mode=ExactMode.OFF, unchecked="it is off")
    told = exactness_to_pb(found)
    assert (told.mode, told.unchecked, told.shapes) == ("off", "it is off", 0)
    assert set(found.counts.values()) == {0}
