"""The table of tokens in a GGUF file, and what puts the tokens of beginning and end around a text."""

from typing import Any

from tokenizers import Tokenizer, processors

from services.common.gguf.file import GgufFile

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED = 1, 2, 3, 4, 5
"""Of `tokenizer.ggml.token_type`; those of type 5 only fill the table up."""
REMEDY = "put the model's own tokenizer.json beside the file"


def table(file: GgufFile, beside: str) -> tuple[list[str], list[int], list[Any]]:
    """Return tokens, what each is, and the list that says how they are put together: `merges` or `scores`.

    Raises:
        GgufError: one of them is missing or of another length.
    """
    tokens, types, rules = (file.keys.get(f"tokenizer.ggml.{name}") for name in ("tokens", "token_type", beside))
    if not isinstance(tokens, list) or not isinstance(rules, list):
        raise file.error("tokenizer.ggml.tokens", f"tokens or {beside} are missing; {REMEDY}")
    if not isinstance(types, list) or len(types) != len(tokens):
        raise file.error("tokenizer.ggml.token_type", f"does not say what each of {len(tokens)} tokens is")
    return tokens, types, rules


def around(file: GgufFile, begins: bool) -> Any:
    """Return what puts the tokens of beginning and end around a text, where the file wants it; None where it does not.

    `begins` says whether texts begin with their token when the file does not say.
    """
    tokens, sides, special = file.keys["tokenizer.ggml.tokens"], {"bos": "", "eos": ""}, []
    for side, default in (("bos", begins), ("eos", False)):
        place = file.keys.get(key := f"tokenizer.ggml.{side}_token_id")
        if place is None or not file.keys.get(f"tokenizer.ggml.add_{side}_token", default):
            continue
        if not 0 <= place < len(tokens):
            raise file.error(key, f"{place} is none of {len(tokens)} tokens, and stands at each text; {REMEDY}")
        sides[side] = tokens[place]
        special.append((tokens[place], place))
    single = " ".join(part for part in (sides["bos"], "$A", sides["eos"]) if part)
    return processors.TemplateProcessing(single=single, special_tokens=special) if special else None


def check(file: GgufFile, made: Tokenizer) -> None:
    """Hold every id against the file's table.

    Raises:
        GgufError: two tokens have one spelling, or the library numbers one in another way.
    """
    types = file.keys["tokenizer.ggml.token_type"]
    for place, token in enumerate(file.keys["tokenizer.ggml.tokens"]):
        if types[place] != UNUSED and made.token_to_id(token) != place:
            raise file.error(
                "tokenizer.ggml.tokens", f"token {place}, {token[:80]!r}, has id {made.token_to_id(token)}"
            )
