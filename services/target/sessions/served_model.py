"""What a target serves, as values."""

from __future__ import annotations

from dataclasses import dataclass, field

from services.common.pb.paceline.v1 import types_pb2 as types
from services.common.request.grammar import Grammars
from services.common.request.limits import LIMITS
from services.common.request.validation import Bounds

SCORES = "scores"
"""That of a target that tells log-probabilities of prompts."""
FORCED = "forced"
"""That of a target that forces and forbids tokens."""
FEATURES = ("prefix_cache", "chunked_prefill", "logprobs", "idempotency", "migration", "ask", "tally", SCORES, FORCED)
"""Capabilities of this build by name, told in Welcome and Describe."""
RULES = "rules"
"""That of a target whose checkpoint has a tokenizer: outputs may be ruled by grammars."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The model; ``max_draft`` is 0 and ``proposer`` none without a drafter.

    ``recommended_sampling`` is reported, not applied. ``grammars`` compiles what outputs must be like; None where the
    checkpoint has no tokenizer.
    """

    name: str
    revision: str
    context_limit: int
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    dtype: str
    max_draft: int
    recommended_sampling: tuple[tuple[str, float], ...] = ()
    grammars: Grammars | None = field(default=None, compare=False)

    @property
    def features(self) -> tuple[str, ...]:
        """Capabilities by name."""
        return FEATURES if self.grammars is None else (*FEATURES, RULES)

    @property
    def bounds(self) -> Bounds:
        """What requests are checked against."""
        return Bounds(self.vocab_size, self.context_limit)

    def to_pb(self, proposer: str) -> types.ModelInfo:
        """The model with the proposer in use."""
        return types.ModelInfo(
            name=self.name,
            revision=self.revision,
            context_limit=self.context_limit,
            max_draft=self.max_draft,
            vocab_size=self.vocab_size,
            eos_token_ids=self.eos_token_ids,
            dtype=self.dtype,
            limits=LIMITS.as_mapping(),
            proposer=proposer,
        )
