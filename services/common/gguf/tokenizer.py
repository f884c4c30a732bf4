"""tokenizer.json and tokenizer_config.json of the model in a GGUF file, in Hugging Face's form."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE

from services.common.gguf.file import GgufFile

_CONTROL, _USER_DEFINED, _UNUSED = 3, 4, 5
"""Of `tokenizer.ggml.token_type`; those of type 5 only fill the table up."""
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@dataclass(frozen=True)
class _Splitting:
    """How text is cut before it is merged: `normalizer`, `split`, and whether a word in the vocabulary stays whole."""

    split: Callable[[], Any]
    normalizer: Callable[[], Any] | None = None
    ignore_merges: bool = False
    begins: bool = False
    """Whether texts begin with the token of the beginning when the file does not say."""


def _bytes(pattern: str) -> Any:
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _gpt2() -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def _digits() -> Any:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])


_LLAMA3 = _Splitting(lambda: _bytes(rf"{_WORDS}|\p{{N}}{{1,3}}|{_REST}"), ignore_merges=True, begins=True)
_QWEN2 = _Splitting(lambda: _bytes(rf"{_WORDS}|\p{{N}}|{_REST}"), normalizers.NFC)
_SPLITTINGS: Mapping[str, _Splitting] = {
    "gpt-2": _Splitting(_gpt2),
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "smollm": _Splitting(_digits),
}
"""By `tokenizer.ggml.pre`. A wrong one makes a worse model and no error, so that others are refused."""
_REMEDY = "put the model's own tokenizer.json beside the file"


def tokenizer(file: GgufFile) -> str:
    """Return what tokenizer.json says.

    Raises:
        GgufError: the tokenizer is of a kind that is not known, or its table is damaged.
    """
    model, pre = (file.keys.get(f"tokenizer.ggml.{name}") for name in ("model", "pre"))
    if model != "gpt2":
        raise file.error("tokenizer.ggml.model", f"{model!r} is not served, only gpt2 (byte-level BPE) is")
    if pre not in _SPLITTINGS:
        known = f"{pre!r} is not known, only {', '.join(_SPLITTINGS)}; {_REMEDY}"
        raise file.error("tokenizer.ggml.pre", known)
    made = _built(file, _SPLITTINGS[str(pre)])
    _check(file, made)
    return str(made.to_str())


def tokenizer_config(file: GgufFile) -> dict[str, Any]:
    """Return what tokenizer_config.json says: the chat template, and the special tokens that it may name."""
    told: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    names = {"bos": "bos_token", "eos": "eos_token", "padding": "pad_token", "unknown": "unk_token"}
    tokens = file.keys.get("tokenizer.ggml.tokens", [])
    for name, ours in names.items():
        place = file.keys.get(f"tokenizer.ggml.{name}_token_id")
        if type(place) is int and place < len(tokens):
            told[ours] = tokens[place]
    template = file.keys.get("tokenizer.chat_template")
    return told | ({"chat_template": template} if isinstance(template, str) else {})


def _table(file: GgufFile) -> tuple[list[str], list[int], list[str]]:
    tokens, types, merges = (file.keys.get(f"tokenizer.ggml.{name}") for name in ("tokens", "token_type", "merges"))
    if not isinstance(tokens, list) or not isinstance(merges, list):
        raise file.error("tokenizer.ggml.tokens", f"tokens or merges are missing; {_REMEDY}")
    if not isinstance(types, list) or len(types) != len(tokens):
        raise file.error("tokenizer.ggml.token_type", f"does not say what each of {len(tokens)} tokens is")
    return tokens, types, merges


def _built(file: GgufFile, splitting: _Splitting) -> Tokenizer:
    tokens, types, merges = _table(file)
    vocabulary = {token: place for place, token in enumerate(tokens) if types[place] != _UNUSED}
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    try:
        made = Tokenizer(BPE(vocabulary, pairs, ignore_merges=splitting.ignore_merges))
    except Exception as error:
        raise file.error("tokenizer.ggml.merges", str(error)) from error
    if splitting.normalizer:
        made.normalizer = splitting.normalizer()
    made.pre_tokenizer, made.decoder = splitting.split(), decoders.ByteLevel()
    for token, kind in zip(tokens, types, strict=True):
        if kind in (_CONTROL, _USER_DEFINED):
            made.add_tokens([AddedToken(token, special=kind == _CONTROL, normalized=False)])
    _add_ends(file, made, tokens, splitting.begins)
    return made


def _add_ends(file: GgufFile, made: Tokenizer, tokens: list[str], begins: bool) -> None:
    """Let the tokenizer put the tokens of beginning and end around a text, where the file wants it."""
    sides, special = {"bos": "", "eos": ""}, []
    for side, default in (("bos", begins), ("eos", False)):
        place = file.keys.get(f"tokenizer.ggml.{side}_token_id")
        if file.keys.get(f"tokenizer.ggml.add_{side}_token", default) and type(place) is int and place < len(tokens):
            sides[side] = tokens[place]
            special.append((tokens[place], place))
    if special:
        single = " ".join(part for part in (sides["bos"], "$A", sides["eos"]) if part)
        made.post_processor = processors.Sequence(
            [
                processors.ByteLevel(trim_offsets=False),
                processors.TemplateProcessing(single=single, special_tokens=special),
            ]
        )


def _check(file: GgufFile, made: Tokenizer) -> None:
    """Hold every id against the file's table.

    Raises:
        GgufError: two tokens have one spelling, or the library numbers one in another way.
    """
    tokens, types, _ = _table(file)
    for place, token in enumerate(tokens):
        if types[place] != _UNUSED and made.token_to_id(token) != place:
            raise file.error(
                "tokenizer.ggml.tokens", f"token {place}, {token[:80]!r}, has id {made.token_to_id(token)}"
            )
