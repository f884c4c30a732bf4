"""Log-probabilities in the two forms of OpenAI's API."""

from collections.abc import Callable, Iterable, Sequence

from services.gateway.http.schema.replies import ChatLogprobs, CompletionLogprobs, TokenLogprob, TopLogprob
from services.gateway.targets.messages import PositionLogprobs, ScoredToken

Spell = Callable[[int], tuple[str, bytes]]
"""A token as text and as bytes."""


def chat_logprobs(positions: Iterable[PositionLogprobs], spell: Spell) -> ChatLogprobs:
    """Log-probabilities of a chat."""
    return {"content": [_position(one, spell) for one in positions], "refusal": None}


def completion_logprobs(positions: Iterable[PositionLogprobs], spell: Spell, offset: int) -> CompletionLogprobs:
    """Log-probabilities of a completion, whose first token begins `offset` characters into the text."""
    found: CompletionLogprobs = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for one in positions:
        text = spell(one.chosen[0])[0]
        found["tokens"].append(text)
        found["token_logprobs"].append(one.chosen[1])
        found["top_logprobs"].append({_apart(*spell(token)): value for token, value in one.top})
        found["text_offset"].append(offset)
        offset += len(text)
    return found


def prompt_logprobs(
    ids: Sequence[int], positions: Sequence[PositionLogprobs], best: int, spell: Spell, text: str
) -> CompletionLogprobs:
    """Log-probabilities of a prompt that stands as `text` before a completion; its first token has none."""
    tokens = [spell(token)[0] for token in ids]
    found: CompletionLogprobs = {"tokens": tokens, "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    # Tokens that the tokenizer puts before a text are no part of it.
    offset = -max(sum(map(len, tokens)) - len(text), 0)
    for token in tokens:
        found["text_offset"].append(max(offset, 0))
        offset += len(token)
    found["token_logprobs"] = [None, *(one.chosen[1] for one in positions)]
    found["top_logprobs"] = [
        None,
        *({_apart(*spell(token)): value for token, value in one.top[:best]} for one in positions),
    ]
    return found


def joined(one: CompletionLogprobs, other: CompletionLogprobs) -> CompletionLogprobs:
    """Those of a text and of what follows on it."""
    return {
        "tokens": one["tokens"] + other["tokens"],
        "token_logprobs": one["token_logprobs"] + other["token_logprobs"],
        "top_logprobs": one["top_logprobs"] + other["top_logprobs"],
        "text_offset": one["text_offset"] + other["text_offset"],
    }


def _apart(text: str, raw: bytes) -> str:
    """A token as a key: one that is part of a character is told by its bytes, as OpenAI's API does."""
    return text if text.encode() == raw else "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def _position(one: PositionLogprobs, spell: Spell) -> TokenLogprob:
    chosen = _scored(one.chosen, spell)
    return {**chosen, "top_logprobs": [_scored(token, spell) for token in one.top]}


def _scored(token: ScoredToken, spell: Spell) -> TopLogprob:
    text, raw = spell(token[0])
    return {"token": text, "logprob": token[1], "bytes": [*raw]}
