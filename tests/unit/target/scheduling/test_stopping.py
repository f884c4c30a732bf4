"""The truth table of what a round's tokens mean for a request."""

from hypothesis import given
from hypothesis import strategies as st

from services.common.request.sampling import FinishReason, StopParams
from services.target.scheduling.slots import apply_stop_conditions, stop_ids
from tests.support.cases import each

STOP, LENGTH, CONTEXT = FinishReason.STOP_TOKEN, FinishReason.LENGTH, FinishReason.CONTEXT
TABLE = [
    ("no end", (5, 6, 7), 0, 10, 0, 99, 3, None),
    ("stop first", (1, 6, 7), 0, 10, 0, 99, 1, STOP),
    ("stop in the middle drops the rest", (5, 1, 7), 0, 10, 0, 99, 2, STOP),
    ("stop last", (5, 6, 1), 0, 10, 0, 99, 3, STOP),
    ("second stop is never reached", (5, 1, 1), 0, 10, 0, 99, 2, STOP),
    ("length cuts", (5, 6, 7), 8, 10, 0, 99, 2, LENGTH),
    ("length exactly", (5, 6, 7), 7, 10, 0, 99, 3, LENGTH),
    ("stop goes before length", (5, 1, 7), 8, 10, 0, 99, 2, STOP),
    ("stop after the length does not count", (5, 6, 1), 8, 10, 0, 99, 2, LENGTH),
    ("context cuts", (5, 6, 7), 0, 10, 0, 2, 2, CONTEXT),
    ("length goes before context", (5, 6, 7), 8, 10, 0, 2, 2, LENGTH),
    ("stop before min_tokens does not end", (1, 6, 7), 0, 10, 2, 99, 3, None),
    ("stop after min_tokens ends", (5, 1, 7), 0, 10, 1, 99, 2, STOP),
    ("min_tokens counts across rounds", (1, 6), 2, 10, 2, 99, 1, STOP),
    ("single token", (5,), 0, 1, 0, 99, 1, LENGTH),
    ("nothing", (), 3, 10, 0, 99, 0, None),
]


@each(("name", "tokens", "generated", "most", "least", "room", "kept", "end"), TABLE)
def test_truth_table(
    name: str,
    tokens: tuple[int, ...],
    generated: int,
    most: int,
    least: int,
    room: int,
    kept: int,
    end: FinishReason | None,
) -> None:
    """One line of the table; 1 is the stop token."""
    stopping = StopParams(max_tokens=most, min_tokens=least, stop_token_ids=(1,))
    assert apply_stop_conditions(tokens, generated, stopping, stop_ids(stopping, frozenset()), room) == (kept, end), (
        name
    )


def test_ignore_eos_keeps_own_stop_tokens() -> None:
    """End-of-sequence tokens stop only those that did not ask to ignore them; requests do not share ids."""
    assert stop_ids(StopParams(9, stop_token_ids=(4,)), frozenset({2})) == {2, 4}
    assert stop_ids(StopParams(9, stop_token_ids=(4,), ignore_eos=True), frozenset({2})) == {4}
    assert stop_ids(StopParams(9), frozenset({2})) == {2}


@given(
    tokens=st.lists(st.integers(0, 5), max_size=40),
    cuts=st.lists(st.integers(1, 8), min_size=40, max_size=40),
    most=st.integers(1, 30),
    least=st.integers(0, 6),
    room=st.integers(1, 30),
)
def test_spans_end_where_single_tokens_do(tokens: list[int], cuts: list[int], most: int, least: int, room: int) -> None:
    """However a text is cut into spans, it ends at the same token for the same reason."""
    stopping = StopParams(max_tokens=most, min_tokens=least, stop_token_ids=(1,))

    def replay(spans: list[int]) -> tuple[int, FinishReason | None]:
        done = 0
        for span in spans:
            kept, end = apply_stop_conditions(tokens[done : done + span], done, stopping, frozenset({1}), room - done)
            done += kept
            if end is not None or done >= len(tokens):
                return done, end
        return done, None

    assert replay(cuts) == replay([1] * 40)
