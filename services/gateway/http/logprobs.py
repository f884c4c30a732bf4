"""Log-probabilities in the two forms of OpenAI's API."""

from collections.abc import Callable, Iterable

from services.gateway.http.replies import ChatLogprobs, CompletionLogprobs, TokenLogprob, TopLogprob
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


def _apart(text: str, raw: bytes) -> str:
    """A token as a key: one that is part of a character is told by its bytes, as OpenAI's API does."""
    return text if text.encode() == raw else "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def _position(one: PositionLogprobs, spell: Spell) -> TokenLogprob:
    chosen = _scored(one.chosen, spell)
    return {**chosen, "top_logprobs": [_scored(token, spell) for token in one.top]}


def _scored(token: ScoredToken, spell: Spell) -> TopLogprob:
    text, raw = spell(token[0])
    return {"token": text, "logprob": token[1], "bytes": [*raw]}
