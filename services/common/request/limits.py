"""Caps on what one request may carry: enforced by the validator, told to clients by ModelInfo.limits."""

from dataclasses import asdict, dataclass

PROTOCOL_VERSION = 1
"""Version of the contracts under proto/paceline/v1 that Hello, Attach and Watch state."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Caps of one request; numbers of entries unless the name says bytes.

    `prompt_bytes` is as much as a message holds: what fits a context is told by its tokens.
    """

    stop_strings: int = 16
    stop_string_bytes: int = 256
    stop_token_ids: int = 64
    logit_bias: int = 1024
    logprobs: int = 20
    prompt_scores: int = 1 << 18
    priority: int = 100
    idempotency_key_bytes: int = 128
    prompt_bytes: int = 1 << 22
    prompt_ids: int = 1 << 20
    chat_messages: int = 1024
    chat_tools: int = 128
    chat_tool_calls: int = 128
    template_arguments: int = 16
    template_argument_bytes: int = 1024
    constraint_bytes: int = 1 << 17
    constraint_choices: int = 1024
    bad_words: int = 128
    bad_word_bytes: int = 256
    allowed_token_ids: int = 1 << 16
    thinking_budget: int = 1 << 20

    def as_mapping(self) -> dict[str, int]:
        """The caps by name with the prefix max_, as ModelInfo.limits carries them."""
        return {f"max_{name}": value for name, value in asdict(self).items()}


LIMITS = RequestLimits()
