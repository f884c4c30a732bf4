"""What a target does about shapes whose rows differ: it mends them, refuses to start, or does not look."""

import hashlib
import json
import logging
import time
from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from services.common import kernels, model
from services.common.device.numerics import Numerics
from services.common.kernels.linear import allowed
from services.common.kernels.linear.allowed import Product
from services.common.model.spec import StackSpec
from services.common.request.errors import Code, PacelineError, Reason
from services.target.device.exact.shape import Shape
from services.target.device.exact.verdict import Verdict, VerdictFile
from services.target.device.shapes import RunnerSettings

_LOG = logging.getLogger(__name__)
_SOURCES = {".py", ".cu", ".cuh", ".json"}


class ExactMode(StrEnum):
    """What is done about shapes that differ."""

    FALLBACK = "fallback"
    STRICT = "strict"
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exactness:
    """What is known of a target's shapes; without a verdict `unchecked` says why. `kept`: an earlier start found it."""

    mode: ExactMode
    verdict: Verdict | None = None
    unchecked: str = ""
    kept: bool = False

    @property
    def counts(self) -> dict[str, int]:
        """Shapes by the states of the metric; none of any where they were not compared."""
        found = self.verdict or Verdict(shapes=0)
        mended, differing = len(found.mended), len(found.differing)
        return {"equal": found.shapes - mended - differing, "mended": mended, "differing": differing}


class Subject(Protocol):
    """Captured steps; see `CapturedSteps`, which are the real ones."""

    shapes: tuple[Shape, ...]
    products: tuple[tuple[int, int], ...]
    """Outputs and depth of every weight that rows are multiplied by."""

    @property
    def incomparable(self) -> str:
        """Why rows cannot be compared; empty where they can."""
        ...

    def differing(self, only: Iterable[Shape] | None = None) -> tuple[Shape, ...]:
        """Returns the shapes whose rows differ from W = 1 of one sequence."""
        ...

    def renew(self, shapes: Iterable[Shape]) -> None:
        """Captures these shapes again."""
        ...


class ExactCheck:
    """The check of one start; `found` tells what it concluded."""

    def __init__(self, mode: ExactMode, file: VerdictFile, unchecked: str = "") -> None:
        """`unchecked` is a reason not to compare that is known already, empty without one."""
        self._file = file
        self._kept = None if mode is ExactMode.OFF or unchecked else file.read()
        self.found = Exactness(mode=mode, unchecked="it is off" if mode is ExactMode.OFF else unchecked)

    def recall(self) -> bool:
        """Before steps are captured: keeps the library from the products that an earlier start found.

        Whether there was one. It captured the same steps, and left what it compiled where the verdict lies.
        """
        for product in self._kept.refused if self._kept else ():
            allowed.refuse(*product)
        return self._kept is not None

    def judge(self, subject: Subject) -> None:
        """Behind the captures: compares, unless an earlier start did, and mends what differs.

        Raises:
            PacelineError: The mode is strict, and shapes differ or cannot be compared; they are named.
        """
        mode = self.found.mode
        unchecked = self.found.unchecked or subject.incomparable
        if unchecked:
            level = logging.INFO if self.found.unchecked else logging.WARNING
            _LOG.log(level, "rows are not compared between shapes: %s", unchecked)
            self.found = Exactness(mode=mode, unchecked=unchecked)
            _refuse_if(mode, f"rows cannot be compared between shapes: {unchecked}")
            return
        verdict = self._kept or self._compared(subject)
        self.found = Exactness(mode=mode, verdict=verdict, kept=self._kept is not None)
        if verdict.named:
            _refuse_if(mode, f"rows differ by the shape they are computed in: {verdict.named}")
            _LOG.warning("rows differed between shapes", extra={"mended": verdict.mended, "left": verdict.differing})
        self._file.write(verdict)

    def _compared(self, subject: Subject) -> Verdict:
        start = time.perf_counter()
        differing = subject.differing()
        verdict = Verdict(shapes=len(subject.shapes), differing=_names(differing))
        if differing and self.found.mode is ExactMode.FALLBACK:
            verdict = _mended(subject, differing)
        _LOG.info("rows compared", extra={"shapes": verdict.shapes, "seconds": round(time.perf_counter() - start, 3)})
        return verdict


def _mended(subject: Subject, differing: Sequence[Shape]) -> Verdict:
    """Keep the library from all products of the rows of these shapes, and compare once more.

    Where that mends no shape of so many rows, the library is not what differs and may compute them again.
    """
    rows = {count for shape in differing for count in shape.counts}
    for product in _products(subject, rows):
        allowed.refuse(*product)
    left = subject.differing(_renewed(subject, rows))
    mended = tuple(shape for shape in differing if shape not in left)
    helped = {count for shape in mended for count in shape.counts}
    for product in _products(subject, rows - helped):
        allowed.allow(*product)
    if rows - helped:
        _renewed(subject, rows - helped)
    return Verdict(
        shapes=len(subject.shapes),
        mended=_names(mended),
        differing=_names(left),
        refused=_products(subject, helped),
    )


def _renewed(subject: Subject, rows: Set[int]) -> tuple[Shape, ...]:
    """Capture every shape that has a product of one of these numbers of rows again."""
    shapes = tuple(shape for shape in subject.shapes if not rows.isdisjoint(shape.counts))
    subject.renew(shapes)
    return shapes


def _products(subject: Subject, rows: Collection[int]) -> tuple[Product, ...]:
    return tuple((*weight, count) for weight in subject.products for count in sorted(rows))


def _names(shapes: Iterable[Shape]) -> tuple[str, ...]:
    return tuple(map(str, shapes))


def _refuse_if(mode: ExactMode, message: str) -> None:
    if mode is ExactMode.STRICT:
        raise PacelineError(Code.FAILED_PRECONDITION, Reason.UNSUPPORTED, f"exact: {message}", "exact")


def verdict_key(
    numerics: Numerics, target: StackSpec, context: StackSpec | None, shapes: RunnerSettings, weight_bytes: int = 0
) -> str:
    """Return a name for all that decides a verdict: numerics, models, captured shapes, and what computes rows.

    `weight_bytes` tell models apart whose weights are kept in fewer bits.
    """
    parts = {
        "numerics": asdict(numerics),
        "models": [repr(target), repr(context), weight_bytes],
        "shapes": [
            shapes.widths,
            shapes.trees,
            *([list(map(repr, shapes.ragged))] if shapes.ragged else []),
            shapes.buckets,
            sorted(shapes.shorts),
            shapes.every_pack,
            shapes.block_size,
            shapes.context_limit,
        ],
        "sources": _sources(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _sources() -> str:
    """A digest of what computes rows, in Python and in CUDA C++."""
    folders = [Path(folder) for package in (kernels, model) for folder in package.__path__]
    files = (path for folder in folders for path in sorted(folder.rglob("*")) if path.suffix in _SOURCES)
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()
