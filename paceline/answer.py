"""What comes back: pieces of text as they become final, and the whole answer with what it took."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from paceline.v1 import inference_pb2, types_pb2

CANCELLED = "cancelled"


@dataclass(frozen=True)
class TokenLogprob:
    """A token with the natural logarithm of its probability, before penalties, bias and temperature."""

    token_id: int
    """The token."""
    logprob: float
    """At most 0."""


@dataclass(frozen=True)
class PositionLogprobs:
    """Log-probabilities at one position of the output."""

    chosen: TokenLogprob
    """The token of the output."""
    top: Sequence[TokenLogprob]
    """The best tokens, best first, as many as `Options.logprobs`."""


@dataclass(frozen=True)
class Piece:
    """Text that became final, and its tokens."""

    position: int
    """Index of its first token in the output."""
    tokens: Sequence[int]
    """Its token ids."""
    text: str
    """Empty while a character or a possible stop string is incomplete."""
    logprobs: Sequence[PositionLogprobs] = ()
    """One for each token, if they were asked for."""
    prompt_logprobs: Sequence[PositionLogprobs] = ()
    """Of tokens of the prompt, if they were asked for; pieces without text bring them."""
    drafted: int = 0
    """Tokens that were drafted in its rounds."""
    accepted: int = 0
    """Draft tokens that were accepted in its rounds."""


@dataclass
class Answer:
    """The output so far. Fields without another word are set when it has ended; times are those of this program."""

    request_id: str = ""
    """The gateway's name of the request, from the first piece on."""
    text: str = ""
    """The text so far."""
    tokens: list[int] = field(default_factory=list)
    """Its token ids so far."""
    logprobs: list[PositionLogprobs] = field(default_factory=list)
    """One for each token so far, if `Options.logprobs` asked for them."""
    prompt_logprobs: list[PositionLogprobs] = field(default_factory=list)
    """One for each token of the prompt from its second on, if `Options.prompt_logprobs` asked for them."""
    finish: str = ""
    """stop_token, stop_string, length, context, deadline or cancelled; empty until then."""
    seed: int = 0
    """The seed in use."""
    model_revision: str = ""
    """Digest of the checkpoint that wrote it."""
    prompt_tokens: int = 0
    """Tokens of the prompt."""
    cached_tokens: int = 0
    """Those of them that the prefix cache had."""
    reasoning_tokens: int = 0
    """Tokens of its thought in <think> tags, the tags among them; 0 from gateways before this release."""
    migrations: int = 0
    """Times that it moved to another target."""
    numerics_changed: bool = False
    """Targets that round differently wrote it, so an unbroken run may give another text."""
    rounds: int = 0
    """Rounds that it took part in."""
    drafted: int = 0
    """Tokens that were drafted for it."""
    accepted: int = 0
    """Draft tokens that were accepted."""
    first_s: float = 0.0
    """Seconds from the call to the first tokens."""
    first_tokens: int = 0
    """Tokens that came first."""
    decode_s: float = 0.0
    """Seconds from the first tokens to the last ones so far."""

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
            logprobs=tuple(_position(one) for one in delta.logprobs),
            prompt_logprobs=tuple(_position(one) for one in delta.prompt_logprobs),
            drafted=delta.drafted,
            accepted=delta.accepted,
        )
        self._time(piece)
        self.answer.tokens.extend(piece.tokens)
        self.answer.text += piece.text
        self.answer.logprobs.extend(piece.logprobs)
        self.answer.prompt_logprobs.extend(piece.prompt_logprobs)
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
        answer.reasoning_tokens = final.usage.reasoning_tokens
        answer.numerics_changed = final.numerics_changed
        answer.rounds, answer.drafted = final.speculation.rounds, final.speculation.drafted
        answer.accepted = final.speculation.accepted


def _position(told: types_pb2.PositionLogprobs) -> PositionLogprobs:
    chosen, *top = (TokenLogprob(one.token_id, one.logprob) for one in (told.chosen, *told.top))
    return PositionLogprobs(chosen, tuple(top))
