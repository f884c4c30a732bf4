"""What a request asks of sampling, stopping and speculation: plain values that gateway, target and kernels share.

Knows neither protobuf nor tensors; ranges are checked by services.common.request.validation.
"""

from dataclasses import dataclass
from enum import StrEnum


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
class SamplingParams:
    """How tokens are chosen; the defaults are greedy decoding without processors.

    `logit_bias` is sorted by token id and holds each id once.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()

    @property
    def greedy(self) -> bool:
        """True when the best score is taken and no noise is drawn."""
        return self.temperature == 0.0

    @property
    def processed(self) -> bool:
        """True when penalties or biases change the logits."""
        return bool(
            self.logit_bias
            or self.repetition_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
        )

    @property
    def plain_greedy(self) -> bool:
        """True when the token is the argmax of the raw logits (min_tokens masks aside)."""
        return self.greedy and not self.processed


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
