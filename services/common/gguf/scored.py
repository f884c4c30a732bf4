"""Tokenizers whose tokens have scores, as SentencePiece's BPE has them: the pair of the best token is joined first.

A token may be joined of any two others, so each such pair becomes a merge; merges stand in the order of scores.
"""

from collections.abc import Mapping, Sequence

from tokenizers import AddedToken, Tokenizer, decoders, normalizers
from tokenizers.models import BPE

from services.common.gguf.file import GgufFile
from services.common.gguf.table import CONTROL, NORMAL, REMEDY, UNUSED, USER_DEFINED, around, table

_BLANK = "\u2581"
"""Stands for a blank in tokens."""


def scored(file: GgufFile) -> Tokenizer:
    """Return the tokenizer of a file whose texts do not begin with a blank of their own.

    Raises:
        GgufError: its table is damaged, or a blank is put before a text.
    """
    tokens, types, scores = table(file, "scores")
    if file.keys.get("tokenizer.ggml.add_space_prefix", True):
        raise file.error("tokenizer.ggml.add_space_prefix", f"a blank before each text is not served; {REMEDY}")
    if len(scores) != len(tokens):
        raise file.error("tokenizer.ggml.scores", f"does not rate each of {len(tokens)} tokens")
    vocabulary = {token: place for place, token in enumerate(tokens) if types[place] != UNUSED}
    unknown = file.keys.get("tokenizer.ggml.unknown_token_id")
    name = tokens[unknown] if unknown is not None and 0 <= unknown < len(tokens) else None
    try:
        model = BPE(vocabulary, _merges(tokens, types, scores), byte_fallback=True, fuse_unk=True, unk_token=name)
    except Exception as error:
        raise file.error("tokenizer.ggml.scores", str(error)) from error
    made = Tokenizer(model)
    made.normalizer = normalizers.Replace(" ", _BLANK)
    made.decoder = decoders.Sequence([decoders.Replace(_BLANK, " "), decoders.ByteFallback(), decoders.Fuse()])
    # What users defined is found whole, blanks among it as they stand behind the normaliser.
    made.add_tokens([
        AddedToken(token, special=kind == CONTROL, normalized=kind == USER_DEFINED and _BLANK in token)
        for token, kind in zip(tokens, types, strict=True) if kind in (CONTROL, USER_DEFINED)
    ])  # fmt: skip
    if ends := around(file, begins=True):
        made.post_processor = ends
    return made


def _merges(tokens: Sequence[str], types: Sequence[int], scores: Sequence[float]) -> list[tuple[str, str]]:
    """Return every pair of tokens that joins to a token, the best token's first."""
    places = {token: place for place, token in enumerate(tokens) if types[place] == NORMAL}
    best = sorted(places, key=lambda token: (-scores[places[token]], places[token]))
    return [pair for token in best for pair in _pairs(token, places)]


def _pairs(token: str, places: Mapping[str, int]) -> list[tuple[str, str]]:
    cuts = ((token[:at], token[at:]) for at in range(1, len(token)))
    return [(left, right) for left, right in cuts if left in places and right in places]
