"""All steps of a target, captured before the first round and then replayed by key (I4)."""

import torch

from services.common.device.graph import StepGraphs
from services.common.pair.flag_wait import FlagWait
from services.target.device.context import Pool
from services.target.device.noise_ring import KernelNoise, NoiseRing
from services.target.device.prefill import FirstTokenStep, PrefillInputs, PrefillStep
from services.target.device.verify import Mode, RoundInputs, VerifyStep

MODES: tuple[Mode, ...] = ("greedy", "full")


class Steps:
    """Verify steps by (bucket, width, mode), prefill steps by length and first-token steps by mode."""

    def __init__(self, pool: Pool, ring: NoiseRing | KernelNoise, gate: FlagWait | None = None) -> None:
        """`gate` makes a step that reads drafts wait for them; None where streams or the host wait."""
        settings = pool.settings
        self.round = RoundInputs(pool, gate)
        self.chunk = PrefillInputs(pool)
        self.graphs = StepGraphs(pool.device, settings.eager)
        self._verify = {
            (bucket, width, mode): VerifyStep(pool, self.round, bucket, width, mode, ring.ring_TV)
            for bucket in settings.buckets
            for width in settings.widths
            for mode in MODES
        }
        self._prefill = {length: PrefillStep(pool, self.chunk, length) for length in settings.prefill_chunks}
        self._first = {mode: FirstTokenStep(pool, self.chunk, mode, ring.ring_TV) for mode in MODES}

    def capture(self) -> None:
        """Captures all of them, largest first, so that memory is claimed once."""
        for length in sorted(self._prefill, reverse=True):
            self.graphs.capture(("prefill", length), self._prefill[length].run, self._prefill[length].tensors)
        for mode, first in self._first.items():
            self.graphs.capture(("first", mode), first.run, first.tensors)
        for key in sorted(self._verify, reverse=True):
            self.graphs.capture(("verify", *key), self._verify[key].run, self._verify[key].tensors)
        self.graphs.settle()

    def renew_verify(self, bucket: int, width: int) -> None:
        """Captures a shape of rounds again, in all modes; rows must point at the pad slot."""
        for mode in MODES:
            self.graphs.renew(("verify", bucket, width, mode))

    def renew_prefill(self, length: int) -> None:
        """Captures a length of chunks again; its row must point at the pad slot."""
        self.graphs.renew(("prefill", length))

    def verify(self, bucket: int, width: int, mode: Mode) -> VerifyStep:
        """The verify step of a shape."""
        return self._verify[bucket, width, mode]

    def prefill(self, length: int) -> PrefillStep:
        """The prefill step of a static length."""
        return self._prefill[length]

    def first(self, mode: Mode) -> FirstTokenStep:
        """The step that chooses a first token."""
        return self._first[mode]

    def run_verify(self, bucket: int, width: int, mode: Mode) -> VerifyStep:
        """Replays one verify and returns it with its results."""
        self.graphs.replay(("verify", bucket, width, mode))
        return self._verify[bucket, width, mode]

    def run_prefill(self, length: int) -> None:
        """Replays one chunk."""
        self.graphs.replay(("prefill", length))

    def run_first(self, mode: Mode) -> FirstTokenStep:
        """Replays the choice of a first token."""
        self.graphs.replay(("first", mode))
        return self._first[mode]


def mode_of(plain: bool) -> Mode:
    """The accept mode of a step; the cheaper "greedy" is right only when every row is plainly greedy."""
    return "greedy" if plain else "full"


def synchronise(device: torch.device) -> None:
    """Waits for the device; on a CPU it returns at once."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
