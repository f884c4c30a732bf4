"""The interface of a proposer; one file per kind. Suffixes: B rows of the bucket (pads last), K draft tokens."""

from typing import Protocol

from torch import Tensor

from services.drafter.arena_view import ArenaView

NO_DRAFT = -1


class Proposer(Protocol):
    """Proposes the tokens after each row's anchor, from shared memory alone (I5)."""

    @property
    def kind(self) -> str:
        """Name of the kind, as in the settings."""

    @property
    def revision(self) -> str:
        """Revision of its checkpoint; empty without one."""

    @property
    def max_draft(self) -> int | None:
        """Longest draft K; None without a limit of its own."""

    @property
    def reads_memory(self) -> bool:
        """Whether it needs the target's embedding and draft context: no message carries those."""

    @property
    def draws(self) -> bool:
        """Whether it follows noise that a GPU makes of seeds: rounds of rows that draw have steps of their own then."""

    def check(self, shared: ArenaView) -> None:
        """Refuses an arena that it cannot work on.

        Raises:
            ValueError: says what is missing or does not fit.
        """

    def propose(self, shared: ArenaView, rows_B: Tensor, width: int) -> Tensor:
        """Drafts of `width` - 1 tokens per row as [B, K] integers; NO_DRAFT where it has none.

        `rows_B` holds slots; what it returns for pad rows does not matter. Shapes depend on B and `width` only (I3).
        """

    def nodes(self, shared: ArenaView, rows_B: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """As trees: tokens, and the row that each follows; draft j is row j + 1, the anchor row 0."""
