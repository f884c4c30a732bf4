"""tokenizer.json and tokenizer_config.json of the model in a GGUF file, in Hugging Face's form."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE

from services.common.gguf.file import GgufFile
from services.common.gguf.scored import scored
from services.common.gguf.table import CONTROL, REMEDY, UNUSED, USER_DEFINED, around, check, table

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


def tokenizer(file: GgufFile) -> str:
    """Return what tokenizer.json says.

    Raises:
        GgufError: the tokenizer is of a kind that is not known, or its table is damaged.
    """
    model, pre = (file.keys.get(f"tokenizer.ggml.{name}") for name in ("model", "pre"))
    if model == "llama":
        made = scored(file)
        check(file, made)
        return str(made.to_str())
    if model != "gpt2":
        raise file.error("tokenizer.ggml.model", f"{model!r} is not served, only gpt2 (byte-level BPE) and llama are")
    if pre not in _SPLITTINGS:
        known = f"{pre!r} is not known, only {', '.join(_SPLITTINGS)}; {REMEDY}"
        raise file.error("tokenizer.ggml.pre", known)
    made = _built(file, _SPLITTINGS[str(pre)])
    check(file, made)
    return str(made.to_str())


def tokenizer_config(file: GgufFile) -> dict[str, Any]:
    """Return what tokenizer_config.json says: the chat template, and the special tokens that it may name."""
    told: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    names = {"bos": "bos_token", "eos": "eos_token", "padding": "pad_token", "unknown": "unk_token"}
    tokens = file.keys.get("tokenizer.ggml.tokens", [])
    for name, ours in names.items():
        place = file.keys.get(f"tokenizer.ggml.{name}_token_id")
        if place is not None and 0 <= place < len(tokens):
            told[ours] = tokens[place]
    template = file.keys.get("tokenizer.chat_template")
    return told | ({"chat_template": template} if isinstance(template, str) else {})


def _built(file: GgufFile, splitting: _Splitting) -> Tokenizer:
    tokens, types, merges = table(file, "merges")
    vocabulary = {token: place for place, token in enumerate(tokens) if types[place] != UNUSED}
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    try:
        made = Tokenizer(BPE(vocabulary, pairs, ignore_merges=splitting.ignore_merges))
    except Exception as error:
        raise file.error("tokenizer.ggml.merges", str(error)) from error
    if splitting.normalizer:
        made.normalizer = splitting.normalizer()
    made.pre_tokenizer, made.decoder = splitting.split(), decoders.ByteLevel()
    for token, kind in zip(tokens, types, strict=True):
        if kind in (CONTROL, USER_DEFINED):
            made.add_tokens([AddedToken(token, special=kind == CONTROL, normalized=False)])
    if ends := around(file, splitting.begins):
        made.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), ends])
    return made
