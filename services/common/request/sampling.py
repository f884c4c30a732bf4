"""A request's sampling, stopping and speculation, as plain values that gateway, target and kernels share.

Knows neither protobuf nor tensors. A sampling parameter is listed here alone: the wire's converters, the validator and
the state of slots follow the fields of SamplingParams.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, get_origin, get_type_hints

LOWEST_TEMPERATURE = 9.999999747378752e-06
"""Lowest temperature that is not greedy, the float32 next to 0.00001: scores divided by less could overflow float32."""

LOWEST_REPETITION_PENALTY = 0.009999999776482582
"""Lowest repetition penalty, the float32 next to 0.01: scores divided by less could overflow float32."""


class FinishReason(StrEnum):
    """Why a request ended; the values are the wire enum's names without prefix, in lower case."""

    STOP_TOKEN = "stop_token"
    STOP_STRING = "stop_string"
    LENGTH = "length"
    CONTEXT = "context"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Range:
    """The allowed numbers: low to high. ``open`` leaves out low; ``zero`` also allows 0."""

    low: float
    high: float
    open: bool = False
    zero: str = ""

    def holds(self, value: float) -> bool:
        """False for NaN too."""
        within = self.low < value <= self.high if self.open else self.low <= value <= self.high
        return within or (self.zero != "" and value == 0)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are chosen; the defaults are greedy decoding without processors.

    `logit_bias` is sorted by token id and holds each id once.
    """

    temperature: Annotated[float, Range(LOWEST_TEMPERATURE, 2.0, zero="greedy")] = 0.0
    top_p: Annotated[float, Range(0.0, 1.0, open=True)] = 1.0
    top_k: Annotated[int, Range(0, 2**32 - 1)] = 0
    min_p: Annotated[float, Range(0.0, 1.0)] = 0.0
    seed: Annotated[int, Range(0, 2**64 - 1)] = 0
    repetition_penalty: Annotated[float, Range(LOWEST_REPETITION_PENALTY, 10.0)] = 1.0
    presence_penalty: Annotated[float, Range(-2.0, 2.0)] = 0.0
    frequency_penalty: Annotated[float, Range(-2.0, 2.0)] = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()

    @property
    def greedy(self) -> bool:
        """True when the best score is taken and no noise is drawn."""
        return self.temperature == 0.0

    @property
    def penalised(self) -> bool:
        """True when it matters which tokens the text holds."""
        return (self.repetition_penalty, self.presence_penalty, self.frequency_penalty) != (1.0, 0.0, 0.0)

    @property
    def processed(self) -> bool:
        """True when penalties or biases change the logits."""
        return self.penalised or bool(self.logit_bias)

    @property
    def plain_greedy(self) -> bool:
        """True when the token is the argmax of the raw logits (min_tokens masks aside)."""
        return self.greedy and not self.processed

    @property
    def unfiltered(self) -> bool:
        """True when the choice among some tokens is that among all, where it is one of these.

        Top-k, top-p and min-p cut what a mask leaves, so what they leave of all tokens tells nothing.
        """
        return not self.processed and (self.greedy or (self.top_k, self.top_p, self.min_p) == (0, 1.0, 0.0))


RANGES: dict[str, Range] = {
    name: hint.__metadata__[0]
    for name, hint in get_type_hints(SamplingParams, include_extras=True).items()
    if get_origin(hint) is Annotated
}
"""What each parameter that is a number may be, in the order of the fields."""


@dataclass(frozen=True, slots=True)
class StopParams:
    """When a request ends. `max_tokens` and `min_tokens` count generated tokens, committed elsewhere included."""

    max_tokens: int
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False


@dataclass(frozen=True, slots=True)
class SpeculationParams:
    """Speculation of one request: switched off, or with a longest draft (None takes the model's)."""

    off: bool = False
    max_draft: int | None = None

    @property
    def cap(self) -> int | None:
        """The longest draft that the request takes: 0 while it is off, None without a limit."""
        return 0 if self.off else self.max_draft
