"""Tokens of thoughts are counted however a text is cut into tokens."""

from services.gateway.prompts.thought import ThoughtCount
from tests.support.cases import each

CASES = {
    "a thought": ("<think>hm</think>", "Yes.", False),
    "blanks before it": (" \n<think>hm</think>", "\n\nYes.", False),
    "one that the prompt has opened": ("hm <b> </thin </think>", "Yes.", True),
    "one that is not closed": ("<think>hm </thin", "", False),
    "one that is opened and not closed": ("hm", "", True),
    "none": ("", "Yes. <think>x</think>", False),
    "nothing": ("", "", False),
    "half a tag": ("", "<thin", False),
    "two tags behind it": ("<think></think>", "</think></think>", False),
    "characters of several bytes": ("<think>日本 é</think>", "日", False),
}


@each("name", CASES)
@each("size", [1, 2, 3, 5])
def test_a_thought_has_its_tokens(name: str, size: int) -> None:
    """Cut into tokens of so many bytes, told one by one and all at once."""
    thought, answer, begun = CASES[name]
    cut = [text.encode() for text in (thought, answer)]
    tokens = [text[at : at + size] for text in cut for at in range(0, len(text), size)]
    expected = -(-len(cut[0]) // size)
    for pieces in ([[token] for token in range(len(tokens))], [[*range(len(tokens))]]):
        count = ThoughtCount(tokens.__getitem__, begun)
        for piece in pieces:
            count.push(piece)
        assert count.tokens == expected
