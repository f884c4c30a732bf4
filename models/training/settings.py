"""Everything that shapes a training run, in frozen dataclasses."""

import sysconfig
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

EOS_TOKEN = "<|endoftext|>"
MASK_TOKEN = "<|mask|>"

PresetName = Literal["cpu", "gpu", "hybrid"]
MODELS = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Delta:
    """A recurrent layer: heads of queries and keys, and of values, and the taps of its convolution."""

    k_heads: int = 2
    v_heads: int = 4
    k_dim: int = 64
    v_dim: int = 64
    taps: int = 4

    @property
    def channels(self) -> int:
        """Width of the convolution."""
        return 2 * self.k_heads * self.k_dim + self.v_heads * self.v_dim


@dataclass(frozen=True)
class Shape:
    """The architecture shared by the target and the drafter.

    With `delta` the target is a hybrid: every fourth layer has gated attention, the others are recurrent.
    """

    vocab_size: int = 1024
    hidden_size: int = 256
    intermediate_size: int = 768
    num_layers: int = 8
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 64
    max_positions: int = 2048
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-6
    draft_layers: int = 2
    block_size: int = 8
    target_layer_ids: tuple[int, ...] = (1, 3, 5)
    eos_token_id: int = 0
    mask_token_id: int = 1
    delta: Delta | None = None
    interval: int = 4

    @property
    def dense(self) -> "Shape":
        """The same with attention alone: what the drafter's layers have."""
        return replace(self, delta=None)

    @property
    def turning(self) -> int:
        """Channels of a head that RoPE turns: a quarter in a hybrid's."""
        return self.head_dim // 4 if self.delta else self.head_dim

    @property
    def norm_offset(self) -> float:
        """What a norm adds to its weights."""
        return 1.0 if self.delta else 0.0

    def recurrent(self, layer: int) -> bool:
        """Whether a layer of the target has a state instead of attention."""
        return self.delta is not None and (layer + 1) % self.interval > 0


@dataclass(frozen=True)
class Budget:
    """When a training stage ends: after so many steps or minutes, whichever comes first.

    The first step, which compiles, takes none of the minutes.
    """

    steps: int
    minutes: float

    def progress(self, step: int, seconds: float) -> float:
        """Return the share of the budget used, between 0 and 1."""
        return min(1.0, max(step / self.steps, seconds / (60.0 * self.minutes)))


@dataclass(frozen=True)
class TargetSettings:
    """Sequences are short until `long_from`, a share of the budget; the rates decay from `decay_from`."""

    budget: Budget
    batch_tokens: int
    lengths: tuple[int, int] = (256, 512)
    long_from: float = 0.75
    muon_lr: float = 0.02
    adam_lr: float = 3e-3
    warmup: float = 0.03
    decay_from: float = 0.4
    clip: float = 1.0


@dataclass(frozen=True)
class GenerateSettings:
    """How much text the target writes for its drafter, greedily and at a temperature."""

    tokens: int
    minutes: float
    batch: int
    length: int = 512
    shortest_prompt: int = 16
    longest_prompt: int = 64
    greedy_share: float = 0.33
    temperature: float = 0.8


@dataclass(frozen=True)
class DrafterSettings:
    """Blocks per sequence, and the decay of the loss along a block."""

    budget: Budget
    batch: int
    anchors: int
    gamma: float = 4.0
    muon_lr: float = 0.02
    adam_lr: float = 1e-3
    warmup: float = 0.04
    clip: float = 1.0


@dataclass(frozen=True)
class TauSettings:
    """The held-out measurement."""

    prompts: int = 40
    new_tokens: int = 256
    temperature: float = 0.8


@dataclass(frozen=True)
class Settings:
    """One whole run."""

    target: TargetSettings
    generate: GenerateSettings
    drafter: DrafterSettings
    tau: TauSettings = field(default_factory=TauSettings)
    shape: Shape = field(default_factory=Shape)
    device: str = "cpu"
    workers: int = 1
    compiled: bool = True
    work: Path = Path("build/embedded")
    out: Path = MODELS / "embedded"
    stdlib: Path = Path(sysconfig.get_path("stdlib"))
    seed: int = 1


UNLIMITED = 10**9

PRESETS: dict[PresetName, Settings] = {
    "cpu": Settings(
        target=TargetSettings(Budget(UNLIMITED, 45.0), batch_tokens=8192),
        generate=GenerateSettings(tokens=2_500_000, minutes=6.0, batch=256),
        drafter=DrafterSettings(Budget(UNLIMITED, 30.0), batch=8, anchors=64),
        workers=2,
        compiled=False,
    ),
    "gpu": Settings(
        target=TargetSettings(Budget(1000, 1.5), batch_tokens=65536, long_from=0.0),
        generate=GenerateSettings(tokens=10_000_000, minutes=1.5, batch=4096),
        drafter=DrafterSettings(Budget(9000, 3.2), batch=32, anchors=64),
    ),
    "hybrid": Settings(
        target=TargetSettings(Budget(700, 1.4), batch_tokens=65536, long_from=0.0),
        generate=GenerateSettings(tokens=8_000_000, minutes=0.8, batch=4096),
        drafter=DrafterSettings(Budget(16_000, 2.1), batch=32, anchors=64),
        shape=Shape(delta=Delta()),
        work=Path("build/embedded-hybrid"),
        out=MODELS / "embedded-hybrid",
    ),
}


def with_minutes(settings: Settings, target: float | None, drafter: float | None) -> Settings:
    """Return the settings with other wall-clock budgets."""
    if target is not None:
        budget = replace(settings.target.budget, minutes=target)
        settings = replace(settings, target=replace(settings.target, budget=budget))
    if drafter is not None:
        budget = replace(settings.drafter.budget, minutes=drafter)
        settings = replace(settings, drafter=replace(settings.drafter, budget=budget))
    return settings
