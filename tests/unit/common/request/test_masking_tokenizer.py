"""Tokens whose names look like tags are text to grammars, and special ones are not, as tokenizer.json says."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, normalizers

from services.common.request.constraint import Constraint, Form
from services.common.request.grammar import Grammars, inline
from services.common.request.spelling import speller
from services.target.device.walker import Walker
from tests.support.cases import each

EMBEDDED = Path(__file__).parents[4] / "models" / "embedded" / "target" / "tokenizer.json"
TAGS = ("<tool_call>", "</tool_call>", "<think>", "</think>", "<b>", "[X]")
SPECIAL = "<|im_end|>"
HOLES, EOS = 5, 0
VOCAB = 1024 + len(TAGS) + 1 + HOLES


@cache
def tokenizer(changes: bool = False) -> Tokenizer:
    """The embedded model's with tags as Qwen3's has them; one that `changes` texts composes their letters."""
    made = Tokenizer.from_file(str(EMBEDDED))
    made.add_tokens([AddedToken(tag, normalized=False) for tag in TAGS])
    made.add_special_tokens([AddedToken(SPECIAL, normalized=False)])
    if changes:
        made.normalizer = normalizers.NFC()
    return made


@cache
def grammars(changes: bool = False) -> Grammars:
    return Grammars(tokenizer(changes).to_str(), tokenizer().get_vocab_size() + HOLES, (EOS,))


def written(form: Form, text: str, seed: int, changes: bool = False) -> str:
    """An output that follows a form, drawn from the masks."""
    compiled = grammars(changes).grammar(grammars(changes).rule(Constraint(form, text, "it")))
    walker, source, output = Walker(compiled), np.random.default_rng(seed), list[int]()
    mask_1N = np.zeros((1, -(-(tokenizer().get_vocab_size() + HOLES) // 32)), dtype=np.int32)
    for _ in range(400):
        walker.fill(mask_1N, ())
        allowed = np.flatnonzero(np.unpackbits(mask_1N[0].view(np.uint8), bitorder="little"))
        assert len(allowed), "a row is never without a choice"
        if EOS in allowed:
            return b"".join(_bytes(token) for token in output).decode()
        output.append(int(source.choice(allowed)))
        walker.commit(output[-1:])
    raise AssertionError("no end")


def _bytes(token: int) -> bytes:
    added = tokenizer().get_added_tokens_decoder().get(token)
    if added is not None:
        return added.content.encode()
    name, spell = tokenizer().id_to_token(token), speller({"type": "ByteLevel"})
    assert name is not None and spell is not None
    return spell(name)


ARGUMENTS = {
    "type": "object",
    "properties": {"a": {"enum": ["<think>", "</tool_call>"]}},
    "required": ["a"],
    "additionalProperties": False,
}
CALLS = rf"""start: "<tool_call>\n" call "\n</tool_call>"
call: "{{\"name\": \"f\", \"arguments\": " arguments "}}"
arguments: {inline(ARGUMENTS)}
"""


@each("seed", range(3))
@each("changes", [False, True])
@each(
    ("form", "text"),
    [
        (Form.CHOICE, [*TAGS]),
        (Form.CHOICE, [f"a {SPECIAL} b"]),
        (Form.REGEX, r"<tool_call>[0-9]{2}</tool_call>(<\|im_end\|>|<b>)"),
        (Form.JSON, {"enum": [*TAGS, SPECIAL]}),
        (Form.JSON, {"const": {"<b>": "</think><think>"}}),
        (Form.CALLS, CALLS),
        (Form.CHOICE, ["é 日本 <b>", "e\u0301"]),
    ],
)
def test_a_text_with_tags_is_written_to_its_end(form: Form, text: Any, seed: int, changes: bool) -> None:
    said = written(form, text if isinstance(text, str) else json.dumps(text), seed, changes)
    if form is Form.CHOICE:
        assert said in text
    elif form is Form.JSON:
        assert json.loads(said) in text.get("enum", [text.get("const")])
    else:
        assert said.startswith("<tool_call>")


def test_a_tag_is_one_token_and_a_special_one_is_no_text() -> None:
    compiled = grammars().grammar(grammars().rule(Constraint(Form.CHOICE, json.dumps(["<tool_call>", SPECIAL]), "it")))
    walker, size = Walker(compiled), tokenizer().get_vocab_size() + HOLES
    mask_1N = np.zeros((1, -(-size // 32)), dtype=np.int32)
    walker.fill(mask_1N, ())
    allowed = {int(one) for one in np.flatnonzero(np.unpackbits(mask_1N[0].view(np.uint8), bitorder="little"))}
    assert tokenizer().token_to_id("<tool_call>") in allowed
    assert tokenizer().token_to_id("<") in allowed
    assert tokenizer().token_to_id(SPECIAL) not in allowed
    assert max(allowed) < tokenizer().get_vocab_size(), "ids without a token are none"


@pytest.mark.parametrize("length", [3, 8, 14, 20, None])
def test_kinds_of_tokens_that_are_masked_as_a_whole_change_no_mask(length: int | None) -> None:
    """However many characters a text may still have, and behind each of them."""
    kinds, none = Grammars(tokenizer().to_str(), VOCAB, (EOS,)), Grammars(tokenizer().to_str(), VOCAB, (EOS,))
    none._tokenizer = none._tokenizer.with_slices([])
    text = json.dumps({"type": "array", "items": {"type": "string"} | ({"maxLength": length} if length else {})})
    ours, theirs = (each.grammar(each.rule(Constraint(Form.JSON, text, "it"))).matcher() for each in (kinds, none))
    said = json.dumps(["x", "ab\n", "é" * 3, "return a"[:length], "self.name, other"[:length], ""], ensure_ascii=False)
    for token in tokenizer().encode(said, add_special_tokens=False).ids:
        assert ours.compute_bitmask() == theirs.compute_bitmask()
        assert ours.consume_token(token) == theirs.consume_token(token)
    assert ours.is_accepting() == theirs.is_accepting()
