"""Stop strings against a reader of single characters, over every way to split a text."""

import random

import pytest

from services.gateway.prompts.stop_strings import StopCutter, StopStrings


def brute_force(text: str, stops: list[str]) -> str | None:
    """The text before the first stop string a reader of single characters finds; None when there is none."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            return text[: end - max(map(len, found))]
    return None


def splits(text: str) -> list[list[str]]:
    """Every way to cut a text into pieces."""
    ways = []
    for mask in range(1 << max(len(text) - 1, 0)):
        pieces, start = [], 0
        for index in range(1, len(text)):
            if mask >> (index - 1) & 1:
                pieces.append(text[start:index])
                start = index
        ways.append([*pieces, text[start:]])
    return ways


def run(pieces: list[str], stops: list[str]) -> tuple[str, bool, list[str]]:
    """What the cutter lets through, whether it stopped, and the pieces it gave."""
    cutter = StopCutter(StopStrings(stops))
    given = []
    for piece in pieces:
        text, stopped = cutter.push(piece)
        given.append(text)
        if stopped:
            return "".join(given), True, given
    given.append(cutter.finish())
    return "".join(given), False, given


@pytest.mark.parametrize(
    ("text", "stops"),
    [
        ("abcabd", ["abd"]),
        ("aaaaab", ["aab"]),
        ("xabcdey", ["abcdef", "cd"]),
        ("xabcdey", ["bcde", "cde", "de"]),
        ("nothing", ["zzz"]),
        ("äöüß", ["öü"]),
        ("ababab", ["abc", "bab"]),
        ("END", ["END"]),
        ("EN", ["END"]),
    ],
)
def test_every_split_cuts_at_the_same_character(text: str, stops: list[str]) -> None:
    expected = brute_force(text, stops)
    for pieces in splits(text):
        shown, stopped, _ = run(pieces, stops)
        assert stopped == (expected is not None)
        assert shown == (text if expected is None else expected)


def test_random_texts_and_stops_over_small_alphabets() -> None:
    random_numbers = random.Random(1)
    for _ in range(3000):
        alphabet = "ab" if random_numbers.random() < 0.5 else "abc"
        text = "".join(random_numbers.choices(alphabet, k=random_numbers.randint(0, 24)))
        stops = ["".join(random_numbers.choices(alphabet, k=random_numbers.randint(1, 5))) for _ in range(3)]
        cuts = sorted(random_numbers.choices(range(len(text) + 1), k=4))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        expected = brute_force(text, stops)
        shown, stopped, _ = run(pieces, stops)
        assert (shown, stopped) == ((text, False) if expected is None else (expected, True)), (text, stops, pieces)


def test_nothing_is_held_back_longer_than_a_stop_string_may_complete() -> None:
    cutter = StopCutter(StopStrings(["abcd"]))
    assert cutter.push("xab") == ("x", False)
    assert cutter.push("x") == ("abx", False)
    assert cutter.push("abc") == ("", False)
    assert cutter.finish() == "abc"


def test_disarmed_matches_do_not_count_and_are_not_held() -> None:
    cutter = StopCutter(StopStrings(["ab"]))
    assert cutter.push("xab", armed=False) == ("xab", False)
    assert cutter.push("yab", armed=True) == ("y", True)


def test_sixteen_long_strings_cost_one_step_a_character() -> None:
    stops = ["a" * 255 + chr(98 + index) for index in range(16)]
    cutter = StopCutter(StopStrings(stops))
    text, stopped = cutter.push("a" * 100_000)
    assert not stopped
    assert len(text) == 100_000 - 255
