"""How prompts begin: forms with places for words. A form that ends in `...` is one that the target itself goes on with.

Held-out prompts are other people's wording; forms are many so that no wording is learnt.
"""

import json
import random
import re
from dataclasses import dataclass
from pathlib import Path

_HERE = Path(__file__).parent
FORMS: dict[str, list[str]] = json.loads((_HERE / "forms.json").read_text("utf-8"))
"""By the kind of prompt."""
WORDS: dict[str, list[str]] = json.loads((_HERE / "words.json").read_text("utf-8"))
"""By what a form calls them."""
GOES_ON = "..."
_PLACE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Opening:
    """The beginning of a user's message, or, when `whole`, all of it."""

    kind: str
    text: str
    whole: bool


WEIGHTS = {"free": 5, "question": 6, "code": 4, "json": 3, "summary": 4, "list": 3, "rewrite": 4, "writing": 3}
"""How often a kind is drawn; questions and summaries are the hardest to draft for."""


def draw_opening(chooser: random.Random) -> Opening:
    """Return a random form with random words in its places."""
    (kind,) = chooser.choices(tuple(WEIGHTS), tuple(WEIGHTS.values()))
    form = chooser.choice(FORMS[kind])
    text = _PLACE.sub(lambda place: chooser.choice(WORDS[place[1]]), form)
    whole = not text.endswith(GOES_ON)
    text = text if whole else text.removesuffix(GOES_ON).rstrip(" ")
    return Opening(kind, _case(text, chooser), whole)


def _case(text: str, chooser: random.Random) -> str:
    """People write prompts carelessly now and then."""
    dice = chooser.random()
    if dice < 0.04:
        return text[:1].lower() + text[1:]
    if dice < 0.07:
        return f"Please {text[:1].lower()}{text[1:]}"
    if dice < 0.09 and text.endswith((".", "?")):
        return text[:-1]
    return text
