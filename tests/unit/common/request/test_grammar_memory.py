"""What constraints hold once they are compiled is bounded: 40 requests of 100 KB ended a gateway of 2 GiB."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from services.common.request.constraint import Constraint, Form
from services.common.request.errors import PacelineError
from services.common.request.grammar import KEPT_CHARACTERS, Grammars
from services.common.request.schema_check import LONG_TEXT, LONG_TEXTS

ROOT = Path(__file__).parents[4]
TOKENIZER = ROOT / "models" / "embedded" / "target" / "tokenizer.json"
MOST_MIB = 64
LONG = "x" * (LONG_TEXTS + 1)

HELD = """
import json, random, re, sys
from pathlib import Path
from services.common.request.constraint import Constraint, Form
from services.common.request.grammar import Grammars

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024

chance = random.Random(7)
def word(size):
    return "".join(chance.choice("abcdefghijklmnopqrstuvwxyz0123456789") for _ in range(size))

grammars = Grammars(Path(sys.argv[1]).read_text(), 1024, (0,))
grammars.rule(Constraint(Form.JSON, "{}", "it"))
before = resident()
for number in range(16):
    stem = word(240)
    grammars.rule(Constraint(Form.JSON, json.dumps({"enum": [word(8000)]}), "it"))
    grammars.rule(Constraint(Form.REGEX, word(8000), "it"))
    grammars.rule(Constraint(Form.CHOICE, json.dumps([f"{stem}{each:03}" for each in range(200)]), "it"))
print(resident() - before, len(grammars._kept))
"""

PLACES: dict[str, Callable[[str], Any]] = {
    "enum": lambda text: {"enum": [text]},
    "const": lambda text: {"properties": {"a": {"const": text}}},
    "within a value": lambda text: {"anyOf": [{"enum": [{"description": [text]}]}]},
    "a name in a value": lambda text: {"const": {text: 1}},
    "name": lambda text: {"$defs": {"a": {"properties": {text: {}}}}},
    "pattern": lambda text: {"items": {"pattern": text}},
    "several": lambda text: {"enum": [text[: LONG_TEXTS // 2], text[LONG_TEXTS // 2 :]]},
}


def grammars() -> Grammars:
    return Grammars(TOKENIZER.read_text(), 1024, (0,))


@pytest.mark.parametrize("place", PLACES)
def test_long_texts_of_a_schema_are_bounded_together_wherever_they_stand(place: str) -> None:
    with pytest.raises(PacelineError, match=f"at most {LONG_TEXTS} are allowed"):
        grammars().rule(Constraint(Form.JSON, json.dumps(PLACES[place](LONG)), "it"))


@pytest.mark.parametrize(("form", "text"), [(Form.REGEX, LONG), (Form.CHOICE, json.dumps(["a", LONG]))])
def test_so_are_those_of_other_forms(form: Form, text: str) -> None:
    with pytest.raises(PacelineError, match=f"at most {LONG_TEXTS} are allowed"):
        grammars().rule(Constraint(form, text, "it"))


def test_what_an_answer_does_not_hold_and_short_texts_may_be_as_many_as_there_is_room() -> None:
    said = {"description": LONG, "title": LONG, "default": LONG, "examples": [LONG, {"a": LONG}], "$comment": LONG}
    grammars().rule(Constraint(Form.JSON, json.dumps(said | {"type": "string"}), "it"))
    short = [f"{number:0{LONG_TEXT}}" for number in range(200)]
    grammars().rule(Constraint(Form.JSON, json.dumps({"enum": short}), "it"))
    grammars().rule(Constraint(Form.CHOICE, json.dumps(short), "it"))


@pytest.mark.parametrize("text", ['{"enum": ["\\ud83d"]}', '{"properties": {"a": {"properties": {"\\ud800": {}}}}}'])
def test_half_a_character_in_a_schema_is_refused(text: str) -> None:
    with pytest.raises(PacelineError, match="half a character"):
        grammars().rule(Constraint(Form.JSON, text, "it"))


def test_few_large_grammars_are_kept_and_many_small_ones() -> None:
    kept = grammars()
    for number in range(10):
        kept.rule(Constraint(Form.JSON, json.dumps({"type": "object", "properties": {f"p{number}": {}}}), "it"))
    assert len(kept._kept) == 10
    large = json.dumps({"description": "x" * (KEPT_CHARACTERS // 2)})
    for number in range(3):
        kept.rule(Constraint(Form.JSON, large.replace("description", f"description{number}"), "it"))
    assert sum(map(len, kept._kept)) <= KEPT_CHARACTERS


def test_requests_of_one_rule_that_are_masked_side_by_side_share_nothing() -> None:
    """Copies of one matcher wait for one another, so each is compiled, up to so many; large rules are compiled once."""
    apart = Grammars(TOKENIZER.read_text("utf-8"), 1024, (0,), apart=3)
    rule = apart.rule(Constraint(Form.JSON, '{"type": "object", "properties": {"a": {"type": "integer"}}}', "it"))
    taken = [apart.grammar(rule)._matcher for _ in range(6)]
    assert len({id(one) for one in taken[:3]}) == 3
    assert taken[3:] == taken[:3], "the one that was taken longest ago"
    large = apart.rule(Constraint(Form.JSON, json.dumps({"description": "x" * (KEPT_CHARACTERS // 9)}), "it"))
    assert len({id(apart.grammar(large)._matcher) for _ in range(3)}) == 1


def test_constraints_as_large_as_they_may_be_hold_little() -> None:
    told = subprocess.run(
        [sys.executable, "-c", HELD, str(TOKENIZER)], cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=280
    ).stdout.split()
    assert float(told[0]) <= MOST_MIB, "MiB"
    assert int(told[1]) >= 2
