"""Log-probabilities keep tokens apart that are parts of characters."""

from services.gateway.http.answers.logprobs import completion_logprobs
from services.gateway.targets.messages import PositionLogprobs

PIECES = (b"a", b"\xe6", b"\x97", b"\xa5", b"<|end|>")


def spell(token: int) -> tuple[str, bytes]:
    return PIECES[token].decode(errors="replace"), PIECES[token]


def test_alternatives_that_are_parts_of_a_character_stand_beside_one_another() -> None:
    one = PositionLogprobs((1, -0.5), tuple((token, -float(token)) for token in range(5)))
    (top,) = completion_logprobs([one], spell, 0)["top_logprobs"]
    assert top == {"a": 0.0, "bytes:\\xe6": -1.0, "bytes:\\x97": -2.0, "bytes:\\xa5": -3.0, "<|end|>": -4.0}
