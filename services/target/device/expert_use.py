"""How often experts are read, counted on the device, and which of them its memory holds.

Kernels add one for each expert and forward. Every so many rounds the sums are copied behind a round; the host looks
whether a copy is there, and waits for none. By the same sums experts change places: an exchange costs two reads over
the link, and is made where the rounds before would have saved four.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from services.common.metrics.catalogue import EXPERT_MEMORIES
from services.common.model.weights.ffn_weights import ExpertWeights

DEVICE, HOST = EXPERT_MEMORIES
EVERY = 32
"""Rounds from one reading to the next."""
WORTH = 4
"""Reads over the link that an exchange must save in so many rounds."""
MOST = 8
"""Exchanges at a time: rounds behind them wait for the link."""


@dataclass(frozen=True)
class Reading:
    """Sums that are on their way, and which experts lay in host memory until they were taken."""

    there: torch.cuda.Event | None
    cold_LE: Tensor
    chooses: bool


class ExpertUse:
    """Counts reads of the experts of all layers, and moves experts; called on the engine's thread alone.

    `visits` are reads of an expert by a forward, by the memory that it lay in, and `read_bytes` what they read.
    `exchanges` are how often two experts have changed places.
    """

    def __init__(self, mixtures: Sequence[ExpertWeights]) -> None:
        """Allocates all that readings and exchanges take."""
        self.visits, self.read_bytes = ({DEVICE: 0, HOST: 0} for _ in range(2))
        self.exchanges = 0
        self.mixtures, self._rounds = mixtures, 0
        self._readings: deque[Reading] = deque()
        if not mixtures:
            return
        uses_E = mixtures[0].uses_E
        shape, on_gpu = (len(mixtures), len(uses_E)), uses_E.device.type == "cuda"
        self._sums_LE = torch.empty(shape, dtype=uses_E.dtype, device=uses_E.device)
        self._told_LE = torch.empty(shape, dtype=uses_E.dtype, pin_memory=on_gpu)
        self._last_LE = torch.zeros(shape, dtype=torch.int64)
        self._recent_LE = torch.zeros(shape, dtype=torch.int64)
        self._bytes_L1 = torch.tensor([[own.expert_bytes] for own in mixtures])
        self._cold_LE = torch.zeros(shape, dtype=torch.bool)
        for cold_E, own in zip(self._cold_LE, mixtures, strict=True):
            if own.cold is not None:
                cold_E.copy_(torch.tensor([own.cold.is_cold(expert) for expert in range(len(cold_E))]))
        self._rooms = None
        if bool(self._cold_LE.any()):
            self._rooms = torch.empty_like(mixtures[0].gate_up_EFD[0]), torch.empty_like(mixtures[0].down_EDF[0])

    def begin(self) -> None:
        """Counts from here: what warm-up read is no use."""
        for own in self.mixtures:
            own.uses_E.zero_()

    def round(self) -> None:
        """Enqueues a reading where one is due, behind the rounds before, and takes one that is there.

        To be called where there are `mixtures`.
        """
        self._rounds += 1
        self._take_arrived()
        if self._rounds >= EVERY and not self._readings:
            self._rounds = 0
            self._read(chooses=True)

    def tell(self) -> None:
        """Takes readings that are there, and enqueues one by which nothing moves where none is on its way."""
        self._take_arrived()
        if self.mixtures and not self._readings:
            self._read(chooses=False)

    def _take_arrived(self) -> None:
        while self._readings and _is_there(self._readings[0]):
            self._take(self._readings.popleft())

    def _read(self, chooses: bool) -> None:
        torch.stack([own.uses_E for own in self.mixtures], out=self._sums_LE)
        self._told_LE.copy_(self._sums_LE, non_blocking=True)
        there = None
        if self._sums_LE.device.type == "cuda":
            there = torch.cuda.Event()
            there.record()
        self._readings.append(Reading(there, self._cold_LE.clone(), chooses))

    def _take(self, reading: Reading) -> None:
        told_LE = self._told_LE.long()
        # Sums of 32 bits go round.
        new_LE = (told_LE - self._last_LE) % (1 << 32)
        self._last_LE, self._recent_LE = told_LE, self._recent_LE + new_LE
        for memory, where_LE in ((DEVICE, ~reading.cold_LE), (HOST, reading.cold_LE)):
            there_LE = new_LE * where_LE
            self.visits[memory] += int(there_LE.sum())
            self.read_bytes[memory] += int((there_LE * self._bytes_L1).sum())
        if reading.chooses:
            self._move(best_exchanges(self._recent_LE, self._cold_LE, MOST))
            self._recent_LE.zero_()

    def _move(self, chosen: Sequence[tuple[int, int, int]]) -> None:
        if not chosen:
            return
        assert self._rooms is not None, "what is cold has rooms to change places through"
        self._read(chooses=False)  # whose experts lie where they have lain so far
        for layer, cold, resident in chosen:
            own = self.mixtures[layer].cold
            assert own is not None, "a layer with cold experts has places for them"
            own.exchange(cold, resident, self._rooms)
            self._cold_LE[layer, cold], self._cold_LE[layer, resident] = False, True
        self.exchanges += len(chosen)


def best_exchanges(uses_LE: Tensor, cold_LE: Tensor, most: int) -> list[tuple[int, int, int]]:
    """Return layer, cold expert and resident one of the exchanges that save most reads, each worth its cost."""
    found: list[tuple[int, int, int, int]] = []
    for layer, (uses_E, cold_E) in enumerate(zip(uses_LE, cold_LE, strict=True)):
        uses = uses_E.tolist()
        colds = sorted(cold_E.nonzero()[:, 0].tolist(), key=lambda expert: -uses[expert])
        residents = sorted((~cold_E).nonzero()[:, 0].tolist(), key=lambda expert: uses[expert])
        for cold, resident in zip(colds, residents, strict=False):
            saved = uses[cold] - uses[resident]
            if saved < WORTH:
                break
            found.append((saved, layer, cold, resident))
    found.sort(key=lambda each: -each[0])
    return [each[1:] for each in found[:most]]


def _is_there(reading: Reading) -> bool:
    return reading.there is None or reading.there.query()
