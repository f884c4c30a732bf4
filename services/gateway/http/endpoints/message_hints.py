"""What Anthropic's clients may say beside a message that has no meaning, or no counterpart, here."""

from typing import Any

from pydantic import ConfigDict

from services.common.request.errors import Code, PacelineError, Reason, unsupported
from services.gateway.http.schema.base import Body, Ignored


class CountHints(Body):
    """Of messages and their counts: none of it changes a text."""

    cache_control: Ignored = None
    context_management: Ignored = None
    betas: Ignored = None
    anthropic_beta: Ignored = None
    anthropic_version: Ignored = None
    billing_policy: Ignored = None
    compaction: Ignored = None
    speed: Ignored = None
    user_profile_id: Ignored = None
    workspace_id: Ignored = None


class Asked(Body):
    """Something that no answer here can be."""

    model_config = ConfigDict(extra="ignore")


class MessageHints(CountHints):
    """Of messages alone; `fallbacks` are for models that decline, and none here does."""

    compaction: Asked | None = None
    container: Ignored = None
    diagnostics: Ignored = None
    fallback_credit_token: Ignored = None
    fallbacks: Ignored = None
    inference_geo: Ignored = None
    metadata: Ignored = None
    service_tier: Ignored = None
    thread: Asked | None = None

    def check(self) -> None:
        """Refuses what another answer is asked for by.

        Raises:
            PacelineError: UNSUPPORTED; `ThreadError` where clients know how to go on.
        """
        if self.thread is not None:
            raise ThreadError
        if self.compaction is not None:
            raise unsupported("compaction", "nothing is summarised here; ask for a summary in a message")


class ThreadError(PacelineError):
    """No conversation is kept here. A client that reads the details sends all messages, now and from then on."""

    def __init__(self) -> None:
        said = "thread: no conversation is kept here; send all messages"
        super().__init__(Code.INVALID_ARGUMENT, Reason.UNSUPPORTED, said, "thread")

    @property
    def details(self) -> dict[str, Any]:
        """What Anthropic's clients read of the refusal."""
        return {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
