"""What became of the tokens that a target committed: sent on, or discarded for a reason (I10)."""

DISCARD_REASONS = ("stop_string", "cancel", "epoch")


class TokenLedger:
    """Counts committed tokens and settles each request's share when it ends.

    `Emitter` settles a request a moment after its end. Of a cancelled one the gateway says how many tokens it kept; it
    may say so lately of one that ended otherwise. Without its word all count as emitted.
    """

    def __init__(self) -> None:
        """Starts at zero; `committed` grows by the tokens of each round."""
        self.committed = 0
        self.emitted = 0
        self.discarded = dict.fromkeys(DISCARD_REASONS, 0)

    @property
    def unsettled(self) -> int:
        """Tokens of requests that live or ended a moment ago; 0 at idle."""
        return self.committed - self.emitted - sum(self.discarded.values())

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
