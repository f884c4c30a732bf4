"""Which rounds of chains of any lengths a target has."""

import logging
from collections.abc import Sequence
from typing import Protocol

from services.common.model import DraftContext
from services.common.model.spec import StackSpec
from services.target.core.width import Ragged

_LOG = logging.getLogger(__name__)
GRAIN = 2
"""Rows of a piece: attention reads a context once for each."""
_FEWEST_ROWS, _PART = 16, 0.75


class Asked(Protocol):
    """What a target's settings say of its rounds."""

    @property
    def ragged(self) -> bool:
        """Whether chains may differ in length."""
        ...

    @property
    def speculates(self) -> bool:
        """Whether there are drafts."""
        ...

    @property
    def nodes(self) -> bool:
        """Whether drafts may be trees."""
        ...

    @property
    def adaptive(self) -> bool:
        """Whether widths are chosen."""
        ...


def ragged_rounds(
    asked: Asked, spec: StackSpec, context: DraftContext, buckets: Sequence[int], widths: Sequence[int]
) -> tuple[Ragged, ...]:
    """The rounds in which chains differ in length; where they cannot, all have one length, and a line says why."""
    if not (asked.ragged and asked.speculates):
        return ()
    found = every_total(buckets, widths)
    hindrances = {
        "drafts may be trees": asked.nodes,
        "widths are fixed": not asked.adaptive,
        "the model has recurrent layers": spec.delta is not None,
        "the drafter makes chains token by token": bool(context.seed_width),
        "there are too few slots or widths": not found,
    }
    why = next((why for why, holds in hindrances.items() if holds), "")
    if why:
        _LOG.warning("chains have one length", extra={"why": why})
    return () if why else found


def every_total(buckets: Sequence[int], widths: Sequence[int]) -> tuple[Ragged, ...]:
    """As many rows as some round of chains has, whose products are compared at the start.

    Few rows, and nearly as many as the widest round has, are left to chains of one length.
    """
    most = widths[-1]
    counts = sorted({bucket * width for bucket in buckets for width in widths[1:]})
    some = (rows for rows in counts if rows % GRAIN == 0 and _FEWEST_ROWS <= rows < buckets[-1] * most * _PART)
    return tuple(Ragged(most, rows, GRAIN) for rows in some) if most % GRAIN == 0 and most > GRAIN else ()
