"""Log-probabilities in the two forms of OpenAI's API."""

from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Sequence
from typing import cast

from services.gateway.http.schema.replies import ChatLogprobs, CompletionLogprobs, TokenLogprob, TopLogprob
from services.gateway.http.server.exchange import encoded
from services.gateway.targets.messages import PositionLogprobs, ScoredToken

Spell = Callable[[int], tuple[str, bytes]]
"""A token as text and as bytes."""


def chat_logprobs(positions: Iterable[PositionLogprobs], spell: Spell) -> ChatLogprobs:
    """Log-probabilities of a chat."""
    return {"content": [_position(one, spell) for one in positions], "refusal": None}


class Offsets:
    """Where tokens begin in their text, in characters; one that is a part of a character, where that begins."""

    def __init__(self, first: int = 0) -> None:
        """The first token begins `first` characters into the text."""
        self._next = first
        self._decoder = getincrementaldecoder("utf-8")(errors="replace")

    def of(self, raw: bytes) -> int:
        """That of the next token, of which these are the bytes."""
        at = self._next
        self._next += len(self._decoder.decode(raw))
        return at


def completion_logprobs(positions: Iterable[PositionLogprobs], spell: Spell, offsets: Offsets) -> CompletionLogprobs:
    """Log-probabilities of a completion, or of the next tokens of one."""
    found: CompletionLogprobs = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for one in positions:
        text, raw = spell(one.chosen[0])
        found["tokens"].append(_apart(text, raw))
        found["token_logprobs"].append(one.chosen[1])
        found["top_logprobs"].append({_apart(*spell(token)): value for token, value in one.top})
        found["text_offset"].append(offsets.of(raw))
    return found


class WrittenChat:
    """Those of a whole chat as JSON, written as they come: as objects they would take ten times the memory."""

    def __init__(self) -> None:
        """Nothing has come."""
        self._positions: list[bytes] = []

    def add(self, positions: Iterable[PositionLogprobs], spell: Spell) -> None:
        """Takes the next ones."""
        self._positions += (encoded(_position(one, spell)) for one in positions)

    def json(self) -> bytes:
        """All of them."""
        return b'{"content":[' + b",".join(self._positions) + b'],"refusal":null}'


class WrittenCompletion:
    """Those of a whole completion as JSON, written as they come."""

    def __init__(self) -> None:
        """Nothing has come."""
        self._lists: dict[str, list[bytes]] = {name: [] for name in CompletionLogprobs.__annotations__}

    def add(self, found: CompletionLogprobs) -> None:
        """Takes the next ones."""
        for name, values in self._lists.items():
            if more := cast("dict[str, list[object]]", found)[name]:
                values.append(encoded(more)[1:-1])

    def json(self, before: CompletionLogprobs | None) -> bytes:
        """All of them, behind those of a prompt."""
        first = WrittenCompletion()
        if before is not None:
            first.add(before)
        lists = (
            b'"%b":[%b]' % (name.encode(), b",".join(first._lists[name] + self._lists[name])) for name in self._lists
        )
        return b"{" + b",".join(lists) + b"}"


def prompt_logprobs(
    ids: Sequence[int], positions: Sequence[PositionLogprobs], best: int, spell: Spell, text: str
) -> CompletionLogprobs:
    """Log-probabilities of a prompt that stands as `text` before a completion; its first token has none."""
    tokens = [spell(token) for token in ids]
    written = b"".join(raw for _, raw in tokens).decode(errors="replace")
    # Tokens that the tokenizer puts before a text are no part of it.
    offsets = Offsets(-max(len(written) - len(text), 0))
    scored = ({_apart(*spell(token)): value for token, value in one.top[:best]} for one in positions)
    return {
        "tokens": [_apart(*token) for token in tokens],
        "token_logprobs": [None, *(one.chosen[1] for one in positions)],
        "top_logprobs": [None, *scored],
        "text_offset": [max(offsets.of(raw), 0) for _, raw in tokens],
    }


def _apart(text: str, raw: bytes) -> str:
    """A token by which it is found among others: a part of a character by its bytes, as OpenAI's API does."""
    return text if text.encode() == raw else "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def _position(one: PositionLogprobs, spell: Spell) -> TokenLogprob:
    chosen = _scored(one.chosen, spell)
    return {**chosen, "top_logprobs": [_scored(token, spell) for token in one.top]}


def _scored(token: ScoredToken, spell: Spell) -> TopLogprob:
    text, raw = spell(token[0])
    return {"token": text, "logprob": token[1], "bytes": [*raw]}
