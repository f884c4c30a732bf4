"""Whatever a model writes, an answer does not depend on where its text is cut, streamed or whole."""

import random

from services.common.request.sampling import FinishReason
from services.gateway.parsing.form import forms
from tests.unit.gateway.parsing.odd_tags import CLOSINGS, OPENINGS, closing, opening
from tests.unit.gateway.parsing.slips import Slip
from tests.unit.gateway.parsing.test_call_corpus import CORPUS, answered

SEED = 62
TAGS = (
    *(
        opening(word, name, form)
        for form in OPENINGS
        for word, name in (("function", "write"), ("parameter", "content"))
    ),
    *(closing(word, "now", tail) for tail in CLOSINGS for word in ("function", "parameter")),
)
PIECES = (
    *TAGS, "<tool_call>", "</tool_call>", "</ tool_call>", "<function=write>", "<function=now>", "</function>",
    "<parameter=content>", "</parameter>", "<think>", "</think>", "<|python_tag|>", "now.call()", "```json\n", "```",
    '{"name": "write", "arguments": {"content": "x"}}', '{"name": "functions.now", "parameters": {}}', "tools.now()",
    "<fun", "</para", "name=", "{{", "}}", *"\n {}[],\"\\'=></x",
)  # fmt: skip
REASONS = (FinishReason.STOP_TOKEN, FinishReason.LENGTH, FinishReason.STOP_STRING)


def drawn(draw: random.Random) -> Slip:
    """Pieces of calls in any order, or a slip with some put in or taken out."""
    opened = draw.random() < 0.2
    if draw.random() < 0.5:
        pieces = draw.choices(PIECES, k=draw.randint(2, 18))
        return Slip(draw.choice(sorted(forms())), "".join(pieces), [], opened=opened)
    slip = draw.choice([*CORPUS.values()])
    text = slip.text
    for _ in range(draw.randint(1, 3)):
        at = draw.randint(0, len(text))
        text = text[:at] + draw.choice(("", draw.choice(PIECES))) + text[at + draw.randint(0, 4) :]
    return Slip(slip.form, text, [], opened=opened)


def test_an_answer_does_not_depend_on_where_its_text_is_cut(full: bool) -> None:
    draw, called = random.Random(SEED), 0
    for _ in range(10_000 if full else 150):
        slip, reason = drawn(draw), draw.choice(REASONS)
        text = slip.text
        expected = answered(slip, [text], reason, stream=False)
        called += bool(expected[2])
        for size in (len(text), 1, 3):
            pieces = [text[at : at + size] for at in range(0, len(text), max(size, 1))]
            assert answered(slip, pieces, reason, stream=True) == expected, f"seed {SEED}: {slip}"
    assert called > 10, "some of them hold calls"
