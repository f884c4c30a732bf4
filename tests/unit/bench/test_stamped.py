"""What the bench of a lone stream's rounds stamps is there, and its table tells where the parts of a round lie."""

from typing import Any

from tests.bench.gpu import nodes
from tests.bench.gpu.nodes_trace import arguments, table
from tests.bench.gpu.stamped import patches

ROUND_NS, AHEAD_NS = 700_000, 5_000


def noted(rounds: int, with_prompts: int) -> dict[str, Any]:
    """A target's notes of rounds one behind the other; `with_prompts` is the number of one that computes prompts."""
    places, calls = [], []
    for number in range(rounds):
        begin = number * ROUND_NS
        places += [[number, 0, begin + 23_000 + AHEAD_NS], [number, 6, begin + ROUND_NS + AHEAD_NS]]
        calls.append(("launch", number, begin - 60_000, begin - 40_000, 16, 0, int(number == with_prompts), 1))
    return {"target": {"places": places, "calls": calls, "ahead": AHEAD_NS}}


def test_every_part_that_is_stamped_is_there() -> None:
    """Its names are private ones of services: who renames one is told here."""
    every = patches()
    for one in every:
        one.start()
    for one in every:
        one.stop()


def test_places_are_those_behind_the_end_of_the_round_before() -> None:
    """A round that computes prompts is left out, and so is the one behind it."""
    assert table(noted(10, with_prompts=4), 1) == [
        "rounds by kind: {16.0: 9}",
        "7 rounds of kind 16.0, a median round of 700 us",
        "     -60 (-60 to -60)   target's host: launch begins",
        "     -40 (-40 to -40)   target's host: launch ends",
        "      23 (23 to 23) verify: its graph begins",
        "     700 (700 to 700) verify: ends",
    ]


def test_a_table_of_no_rounds_says_so() -> None:
    assert table(noted(1, with_prompts=-1), 1) == ["rounds by kind: {16.0: 1}", "0 rounds of kind 16.0"]


def test_rounds_of_other_streams_are_left_out() -> None:
    """A round of fewer rows than streams is one that some have left."""
    assert table(noted(10, with_prompts=4), 2) == ["rounds by kind: {}"]


def test_loads_find_all_that_they_ask_for() -> None:
    """The bench borrows loads of another one, and had not had a flag that those got later."""
    asked = arguments(["--tokens", "8"])
    assert vars(asked).keys() >= vars(nodes.arguments([])).keys() | {"ways", "brief", "profile"}
    assert (asked.tokens, asked.pair, asked.seeds) == (8, "embedded", 1)
