"""The captured steps of a target, as the check compares and renews them."""

from collections.abc import Iterable, Sequence

from services.target.device.context import Pool
from services.target.device.exact.compare import Comparison
from services.target.device.exact.scratch import Scratch
from services.target.device.exact.shape import EDGES, Shape, every_shape
from services.target.device.steps import Steps


class CapturedSteps:
    """All shapes of a target that has captured them and taken no request yet."""

    def __init__(self, pool: Pool, steps: Steps, edges: Sequence[int] = EDGES) -> None:
        """`edges` are positions at which rows of one forward may be computed otherwise."""
        self._pool, self._steps, self._edges = pool, steps, edges
        self.shapes = tuple(every_shape(pool.settings))
        self.products = tuple(dict.fromkeys((*pool.model.products, *pool.context.products)))

    @property
    def incomparable(self) -> str:
        """Why rows cannot be compared; empty where they can."""
        settings, scratch = self._pool.settings, Scratch(self._pool, self._steps)
        if settings.synthetic_acceptance:
            return "synthetic acceptance edits scores"
        if scratch.seats < 1 or scratch.reach <= settings.widest:
            return "there are too few blocks"
        return ""

    def differing(self, only: Iterable[Shape] | None = None) -> tuple[Shape, ...]:
        """Return the shapes whose rows differ from W = 1 of one sequence, of all or of some."""
        with Scratch(self._pool, self._steps) as sequences:
            found = Comparison(sequences, self.shapes, self._edges).differing(only)
        self._steps.graphs.settle()
        return found

    def renew(self, shapes: Iterable[Shape]) -> None:
        """Capture these shapes again, for the products of their rows are computed otherwise now."""
        for shape in shapes:
            if shape.packs:
                self._steps.renew_prefill(shape.pack)
            else:
                self._steps.renew_verify(shape.bucket, shape.width, shape.kind)
