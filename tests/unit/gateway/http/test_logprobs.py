"""Log-probabilities of completions: tokens that are parts of characters are kept apart, and begin where these do."""

from services.gateway.http.answers.logprobs import Offsets, completion_logprobs, prompt_logprobs
from services.gateway.targets.messages import PositionLogprobs

PIECES = (b"a", b"\xe6", b"\x97", b"\xa5", b"<|end|>")


def spell(token: int) -> tuple[str, bytes]:
    return PIECES[token].decode(errors="replace"), PIECES[token]


def test_alternatives_that_are_parts_of_a_character_stand_beside_one_another() -> None:
    one = PositionLogprobs((1, -0.5), tuple((token, -float(token)) for token in range(5)))
    (top,) = completion_logprobs([one], spell, Offsets())["top_logprobs"]
    assert top == {"a": 0.0, "bytes:\\xe6": -1.0, "bytes:\\x97": -2.0, "bytes:\\xa5": -3.0, "<|end|>": -4.0}


def test_a_token_stands_among_its_alternatives_by_the_same_name() -> None:
    """Evaluations ask so whether the token was the best one."""
    one = PositionLogprobs((1, -0.5), ((1, -0.5), (2, -0.7)))
    told = completion_logprobs([one], spell, Offsets())
    (top,) = told["top_logprobs"]
    assert told["tokens"] == ["bytes:\\xe6"]
    assert top is not None and max(top, key=lambda name: top[name]) == told["tokens"][0]
    prompt = prompt_logprobs((0, 1), [one], 1, spell, "a\ufffd")
    assert prompt["tokens"] == ["a", *(prompt["top_logprobs"][1] or ())]


def test_offsets_count_characters_of_the_text_whole_and_in_pieces() -> None:
    ids = (0, 1, 2, 3, 0, 1, 2, 3, 0)
    text = b"".join(PIECES[token] for token in ids).decode()
    positions = [PositionLogprobs((token, -1.0), ()) for token in ids]
    told = completion_logprobs(positions, spell, Offsets())["text_offset"]
    assert [text[at] for at in told] == list("a日日日a日日日a")
    later = Offsets()
    pieces = [completion_logprobs([one], spell, later)["text_offset"] for one in positions]
    assert [at for piece in pieces for at in piece] == told


def test_offsets_of_a_prompt_leave_out_what_the_tokenizer_puts_before_it() -> None:
    positions = [PositionLogprobs((token, -1.0), ()) for token in (0, 1, 2, 3, 0)]
    told = prompt_logprobs((4, 0, 1, 2, 3, 0), positions, 0, spell, "a日a")
    assert told["text_offset"] == [0, 0, 1, 1, 1, 2]
