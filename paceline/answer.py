"""What comes back: pieces of text as they become final, and the whole answer with what it took."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from paceline.v1 import inference_pb2, types_pb2

CANCELLED = "cancelled"


@dataclass(frozen=True)
class Piece:
    """Text that became final, and its tokens from `position` of the output on.

    The text may be empty while a character or a possible stop string is incomplete. `drafted` and `accepted` count the
    draft tokens of the rounds that committed these tokens.
    """

    position: int
    tokens: Sequence[int]
    text: str
    logprobs: Sequence[types_pb2.PositionLogprobs] = ()
    drafted: int = 0
    accepted: int = 0


@dataclass
class Answer:
    """The output so far; `finish` is empty until it has ended, the fields from `seed` to `accepted` are set then.

    `finish` is stop_token, stop_string, length, context, deadline or cancelled. Times are seconds as this program sees
    them: `first_s` from the call to the first tokens, `decode_s` from there to the last ones. With `numerics_changed`
    targets that round differently wrote it.
    """

    request_id: str = ""
    text: str = ""
    tokens: list[int] = field(default_factory=list)
    finish: str = ""
    seed: int = 0
    model_revision: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    migrations: int = 0
    numerics_changed: bool = False
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    first_s: float = 0.0
    first_tokens: int = 0
    decode_s: float = 0.0

    @property
    def tau(self) -> float:
        """Mean tokens committed per round; 0 without a round."""
        return (self.accepted + self.rounds) / self.rounds if self.rounds else 0.0

    @property
    def decode_tok_s(self) -> float:
        """Tokens per second after the first ones; 0 when all came at once."""
        return (len(self.tokens) - self.first_tokens) / self.decode_s if self.decode_s > 0 else 0.0


class Reading:
    """An answer as it grows by the messages of its stream."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begins now; `clock` gives seconds."""
        self.answer = Answer()
        self._clock = clock
        self._began = clock()
        self._first = 0.0

    def take(self, message: inference_pb2.GenerateResponse) -> Piece | None:
        """Adds a message; None when it is the last one."""
        self.answer.request_id = message.request_id
        if message.HasField("final"):
            self._end(message.final)
            return None
        delta = message.delta
        piece = Piece(
            position=delta.position,
            tokens=tuple(delta.token_ids),
            text=delta.text,
            logprobs=tuple(delta.logprobs),
            drafted=delta.drafted,
            accepted=delta.accepted,
        )
        self._time(piece)
        self.answer.tokens.extend(piece.tokens)
        self.answer.text += piece.text
        return piece

    def cancel(self) -> None:
        """The program wants no more of it."""
        self.answer.finish = self.answer.finish or CANCELLED

    def _time(self, piece: Piece) -> None:
        now, answer = self._clock(), self.answer
        if answer.tokens:
            answer.decode_s = now - self._first
        elif piece.tokens:
            answer.first_s, self._first = now - self._began, now
            answer.first_tokens = len(piece.tokens)

    def _end(self, final: inference_pb2.Final) -> None:
        answer = self.answer
        answer.finish = types_pb2.FinishReason.Name(final.finish_reason).removeprefix("FINISH_REASON_").lower()
        answer.seed, answer.model_revision = final.seed, final.model_revision
        answer.prompt_tokens = final.usage.prompt_tokens
        answer.cached_tokens, answer.migrations = final.usage.cached_tokens, final.usage.migrations
        answer.numerics_changed = final.numerics_changed
        answer.rounds, answer.drafted = final.speculation.rounds, final.speculation.drafted
        answer.accepted = final.speculation.accepted
