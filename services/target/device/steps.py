"""All steps of a target, captured before the first round and then replayed by key (I4)."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from services.common.device.graph import StepGraphs
from services.common.kernels.ahead import briefly, compile_steps
from services.common.kernels.row_table import RowTable
from services.common.pair.flag_wait import FlagWait
from services.common.serving.progress import STEPS, Progress
from services.target.core.width import Ragged, Tree, Width, evenly
from services.target.device.context import Pool
from services.target.device.noise_ring import KernelNoise, NoiseRing
from services.target.device.packing import Pack
from services.target.device.prefill import FirstTokenStep, PackInputs, PrefillStep
from services.target.device.shapes import (
    RAGGED,
    SHORT_RAGGED,
    SHORT_TREES,
    SHORT_VERIFY,
    TREES,
    VERIFY,
    PackShape,
    RunnerSettings,
)
from services.target.device.state import Rows
from services.target.device.verify import Form, Mode, RoundInputs, VerifyStep

MODES: tuple[Mode, ...] = ("greedy", "full")
_KINDS = {int: (VERIFY, SHORT_VERIFY), Tree: (TREES, SHORT_TREES), Ragged: (RAGGED, SHORT_RAGGED)}
SHORT_POSITIONS, SOME_SHORT_POSITIONS, SOME = 1024, 1280, 8
"""Positions up to which short rounds take less time, measured on an H200: of few sequences, of more; what more is."""


class Steps:
    """Verify steps by (kind, bucket, width, mode), prefill steps by shape, first-token steps by (bucket, mode).

    Of chains of any lengths bucket and width are pieces and their rows; all sequences have lines in them.
    """

    def __init__(self, pool: Pool, ring: NoiseRing | KernelNoise, gate: FlagWait | None = None) -> None:
        """`gate` makes a step that reads drafts wait for them; None where streams or the host wait."""
        settings = pool.settings
        self.round = RoundInputs(pool, gate)
        self.pack = PackInputs(pool)
        self.graphs = StepGraphs(pool.device, settings.eager)
        self._verify = {
            (kind, bucket, width, mode): VerifyStep(
                pool, self.round, bucket, width, mode, ring.ring_TV,
                Form(short=kind in (SHORT_VERIFY, SHORT_TREES), trees=kind in (TREES, SHORT_TREES)),
            )
            for kind, bucket, width in settings.rounds
            for mode in MODES
        }  # fmt: skip
        for kind, pieces, grain in settings.ragged_rounds:
            rows, most = settings.buckets[-1], settings.widths[-1]
            table = RowTable.allocate(pieces, grain, rows, settings.pad_slot, pool.device)
            form = Form(short=kind == SHORT_RAGGED, table=table)
            for mode in MODES:
                step = VerifyStep(pool, self.round, rows, most, mode, ring.ring_TV, form)
                self._verify[kind, pieces, grain, mode] = step
        self._prefill = {shape: PrefillStep(pool, self.pack, shape, self.round.rows_B) for shape in settings.every_pack}
        self._first = {
            (bucket, mode): FirstTokenStep(pool, self.pack, bucket, mode, ring.ring_TV)
            for bucket in settings.buckets
            for mode in MODES
        }

    def compile_ahead(self, threads: int, cached: bool = False) -> None:
        """Compiles in threads what all of them launch, if it is not `cached`; captures then find it."""
        if not self.graphs.compiles:
            return
        if threads > 1 and not cached:
            with self.graphs.aside():
                runs = [step.run for step in self._prefill.values()]
                runs += [step.run for step in self._first.values()]
                compile_steps([*runs, *map(self._before, self._verify)], threads)
        self.graphs.brief = briefly if threads > 1 else None

    def capture(self) -> None:
        """Captures all of them, largest first, so that memory is claimed once."""
        progress = Progress(STEPS, len(self._prefill) + len(self._first) + len(self._verify))
        for shape in sorted(self._prefill, key=lambda shape: shape.rows, reverse=True):
            self.graphs.capture(("prefill", *shape), self._prefill[shape].run, self._prefill[shape].tensors)
            progress.add()
        for first in sorted(self._first, reverse=True):
            self.graphs.capture(("first", *first), self._first[first].run, self._first[first].tensors)
            progress.add()
        for key in sorted(self._verify, reverse=True):
            self.graphs.capture(key, self._verify[key].run, self._verify[key].tensors, self._before(key))
            progress.add()
        self.graphs.settle()

    def _before(self, key: tuple[str, int, int, Mode]) -> Callable[[], None]:
        """What a verify step runs before it is recorded: layers only in the first mode, for all modes have the same."""
        run = self._verify[key].run
        return run if key[-1] == MODES[0] else partial(run, layers=False)

    def renew_verify(self, bucket: int, width: int, kind: str = VERIFY) -> None:
        """Captures a shape of rounds again, in all modes; rows must point at the pad slot.

        With plain rounds it renews the first tokens of as many prompts, whose head has the same rows.
        """
        for mode in MODES:
            self.graphs.renew((kind, bucket, width, mode))
            if width == 1 and kind == VERIFY:
                self.graphs.renew(("first", bucket, mode))

    def renew_prefill(self, shape: PackShape) -> None:
        """Captures a shape of packs again, with nothing in it; rows must point at the pad slot."""
        self.pack.set(Pack(shape, []))
        self.graphs.renew(("prefill", *shape))

    def verify(self, bucket: int, width: int, mode: Mode, kind: str = VERIFY) -> VerifyStep:
        """The verify step of a shape."""
        return self._verify[kind, bucket, width, mode]

    def seat(self, width: Ragged, slots: Sequence[int]) -> None:
        """Gives the rows of chains of any lengths to slots, as evenly as they can be; without slots all are padding."""
        for (_, *shape, _), step in self._verify.items():
            if step.table is not None and shape == [width.pieces, width.grain]:
                step.table.set(slots, evenly(width, len(slots)) if slots else ())

    def first(self, bucket: int, mode: Mode) -> FirstTokenStep:
        """The step that chooses first tokens."""
        return self._first[bucket, mode]

    def run_verify(self, bucket: int, width: int, mode: Mode, kind: str = VERIFY) -> VerifyStep:
        """Replays one verify and returns it with its results."""
        self.graphs.replay((kind, bucket, width, mode))
        return self._verify[kind, bucket, width, mode]

    def run_prefill(self, pack: Pack, beside: int = 0) -> None:
        """Fills the inputs and replays one pack; so many of the round's rows lie beside a mixed one."""
        self.pack.set(pack, beside)
        self.graphs.replay(("prefill", *pack.shape))

    def run_scored(self, pack: Pack) -> Tensor:
        """Runs one pack outside of what is captured; returns the hidden states of all its rows [T, D]."""
        self.pack.set(pack)
        return self._prefill[pack.shape].run_all()

    def run_first(self, bucket: int, mode: Mode) -> FirstTokenStep:
        """Replays the choice of first tokens and returns it with its results."""
        self.graphs.replay(("first", bucket, mode))
        return self._first[bucket, mode]


def kind_of(settings: RunnerSettings, shape: tuple[int, int], width: Width, reach: int) -> str:
    """The kind of round, of a shape, for contexts that end up to `reach`, whose length is a matter of speed alone."""
    most = SHORT_POSITIONS if shape[0] < SOME else SOME_SHORT_POSITIONS
    return _KINDS[type(width)][shape in settings.shorts and reach <= most]


def shape_of(bucket: int, width: Width) -> tuple[int, int]:
    """How attention takes rows apart: sequences and their rows, or pieces and theirs."""
    return (width.pieces, width.grain) if isinstance(width, Ragged) else (bucket, int(width))


def mode_of(rows: Rows) -> Mode:
    """The accept mode of a step; the cheaper "greedy" is right only when every row is plainly greedy."""
    for _, seat in rows:
        if not seat.plain:
            return "full"
    return "greedy"


def synchronise(device: torch.device) -> None:
    """Waits for the device; on a CPU it returns at once."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
