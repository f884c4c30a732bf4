"""Where every committed token went: committed = emitted + discarded{stop_string, cancel, epoch} + unsettled (I10)."""

from __future__ import annotations

DISCARD_REASONS = ("stop_string", "cancel", "epoch")


class TokenLedger:
    """Counts committed tokens and settles each request's share when it ends.

    A token is unsettled until a moment after its request has ended, when the gateway has said how many it kept. At idle
    ``unsettled`` is 0, and the identity is that of invariant I10.
    """

    def __init__(self) -> None:
        """Starts at zero."""
        self.committed = 0
        self.emitted = 0
        self.discarded = dict.fromkeys(DISCARD_REASONS, 0)

    @property
    def unsettled(self) -> int:
        """Tokens of requests that have not ended."""
        return self.committed - self.emitted - sum(self.discarded.values())

    def commit(self, tokens: int) -> None:
        """Counts tokens that a round committed."""
        self.committed += tokens

    def settle(self, tokens: int, kept: int, reason: str = "cancel") -> None:
        """Splits the tokens of an ended request into those kept and those discarded for ``reason``.

        Args:
            tokens: Tokens committed for it on this target.
            kept: How many of them reached the client; clamped to [0, tokens].
            reason: stop_string, epoch, or anything else for cancel.
        """
        kept = min(max(kept, 0), tokens)
        self.emitted += kept
        self.discarded[reason if reason in self.discarded else "cancel"] += tokens - kept
