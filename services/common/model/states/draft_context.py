"""The context that a target writes of its own rows for one kind of drafter."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from services.common.model.spec import StackSpec
from services.common.model.states.seeds import Seeds
from services.common.model.states.states import Rows


@dataclass(frozen=True, slots=True)
class Chained:
    """What the context of a chain is made of beside features: the rows' tokens, and the states before them."""

    ids_T: Tensor
    seeds: Seeds


class DraftContext(Protocol):
    """Context under the block ids of the target's K/V, written together with it."""

    @property
    def spec(self) -> StackSpec | None:
        """The model in the drafter's own process; None for a kind without one."""
        ...

    @property
    def revision(self) -> str:
        """Of the drafter's checkpoint; empty without one."""
        ...

    @property
    def taps(self) -> tuple[int, ...]:
        """Blocks of the target whose residual streams make the features; none where nothing is written."""
        ...

    @property
    def most_rows(self) -> int | None:
        """Rows of the longest span that the drafter can fill; None without a limit."""
        ...

    @property
    def ranks(self) -> bool:
        """Whether the drafter ranks several tokens of a position: drafts may be trees."""
        ...

    @property
    def elements(self) -> int:
        """Numbers of the weights that the target holds for it."""
        ...

    @property
    def drafter_elements(self) -> int:
        """Numbers of the weights that the drafter's process holds, beside the target's embedding and head."""
        ...

    @property
    def products(self) -> tuple[tuple[int, int], ...]:
        """Shapes [outputs, depth] of the weights that the target's rows are multiplied by."""
        ...

    @property
    def seed_width(self) -> int:
        """Numbers of the state that a draft begins with; 0 where it begins with a token alone."""
        ...

    def kv_shape(self, blocks: int, block_size: int) -> tuple[int, ...]:
        """Return the shape of what is written."""
        ...

    def write(self, features_TF: Tensor, rows: Rows, kv: Tensor, chained: Chained | None = None) -> Tensor | None:
        """Write what belongs to rows at their own positions and slots; rejected ones are written again later.

        A context of seeds needs `chained` and returns the rows' states [T, D]; others return None.
        """
        ...


class NoContext:
    """For drafters that read nothing of the target but its tokens."""

    spec: StackSpec | None = None
    revision = ""
    taps: tuple[int, ...] = ()
    most_rows: int | None = None
    ranks = False
    elements = drafter_elements = 0
    products: tuple[tuple[int, int], ...] = ()
    seed_width = 0

    def kv_shape(self, blocks: int, block_size: int) -> tuple[int, ...]:
        """Return no place: this drafter reads nothing of the target."""
        return (0,)

    def write(self, features_TF: Tensor, rows: Rows, kv: Tensor, chained: Chained | None = None) -> None:
        """Write nothing: this drafter reads nothing of the target."""
