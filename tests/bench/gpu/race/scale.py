"""How large a race is: as it is published, or so small that a CPU shows that all of it runs."""

from __future__ import annotations

from dataclasses import dataclass

from tests.bench.gpu.race.plan import CLOSED_S, OUTS, SLOTS
from tests.bench.gpu.rig import RigSettings
from tests.bench.gpu.shapes import QWEN3_4B, TINY
from tests.support.tiny_checkpoints import TinyShape


@dataclass(frozen=True)
class Scale:
    """Shapes, device and slots of both sides, tokens of outputs, and the most seconds of a closed loop."""

    shape: TinyShape
    on_gpu: bool
    slots: int
    outs: tuple[int, ...]
    closed_s: float

    def settings(self, memory_gb: float) -> RigSettings:
        """Of paceline's pair."""
        device, dtype = ("cuda", "bfloat16") if self.on_gpu else ("cpu", "float32")
        memory = int((memory_gb if self.on_gpu else 1.0) * (1 << 30))
        widths = (1, 4, 6, 8, 12, 16) if self.on_gpu else (1, 4, 8, 16)
        return RigSettings(self.shape, device, dtype, self.slots, widths, 2048, memory)


FULL_SCALE = Scale(QWEN3_4B, True, SLOTS, OUTS, CLOSED_S)
TINY_SCALE = Scale(TINY, False, 32, (24, 12), 1.0)
