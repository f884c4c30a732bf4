"""Training: the frozen target reads packed conversations, the drafter learns to say what it says next."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import sdpa_kernel

from models.training.drafter import DraftLayer
from models.training.foreign.convolution import ConvLayer
from models.training.foreign.frozen import BACKENDS, FrozenTarget
from models.training.foreign.kinds import BlockDrafter, Form, new_drafter
from models.training.foreign.loss import Labels, decay, draft_loss, judge
from models.training.foreign.packing import Blocks, Packed, Pattern, causal_bias, draw_blocks
from models.training.foreign.pair_heads import Scored
from models.training.foreign.trained import Trained
from models.training.journal import Journal, compiled_at
from models.training.network import Rotation, rotation_at
from models.training.optimizer import Optimizer
from models.training.settings import Shape

RMS_BATCHES = 4


@dataclass(frozen=True)
class LearningOptions:
    """Batches of `rows` packed rows until `seconds` or `steps` are spent; the rates fall with whichever is nearer.

    `gamma` is how slowly a row's weight falls along a block, `temperature` that of the drawn texts. What a kind has for
    the token before learns of `pair_rows` rows a step, from a share `pairs_from` of the budget on.
    """

    seconds: float
    steps: int = 10**9
    rows: int = 48
    pattern: Pattern = field(default_factory=Pattern)
    gamma: float = 5.0
    temperature: float = 0.8
    muon_lr: float = 0.02
    adam_lr: float = 1e-3
    warmup: float = 0.04
    clip: float = 1.0
    chunk: int = 8192
    pair_rows: int = 4096
    pairs_from: float = 0.25
    report_seconds: float = 90.0
    seed: int = 1
    compiled: bool = False


class Reader:
    """A drafter in training, and the scale of the target's features by channel [features] that it is trained with.

    Features differ in size by hundreds, and training stalls without the scale; `folded` puts it into the drafter. With
    `begun` the drafter has learnt already, of features as they are.
    """

    begun = False

    def __init__(
        self, target: FrozenTarget, shape: Shape, options: LearningOptions, make: Callable[[], Trained]
    ) -> None:
        """`make` draws a drafter."""
        self.target, self.shape, self.options, self._make = target, shape, options, make
        torch.manual_seed(options.seed)
        self.trained = make().to(target.device)
        self.trained.norm.weight.data.copy_(target.weights.norm_D.float() + target.spec.norm_offset)
        self.name, self.progress = "drafter", 0.0
        self._kept: dict[tuple[int, ...], Tensor] = {}
        self.scale = torch.ones(self.trained.fc.in_features, device=target.device)
        self.table = target.weights.lm_head_VD
        self._judge = torch.compile(judge, dynamic=False) if options.compiled else judge

    def loss(self, batch: Packed, generator: torch.Generator) -> Tensor:
        """Return the loss over random places of a batch."""
        raise NotImplementedError

    def features(self, ids: tuple[int, ...]) -> Tensor:
        """Return the target's features [tokens, features] of a text; they are kept."""
        if ids not in self._kept:
            self._kept[ids] = self.read(Packed.single(torch.tensor(ids, device=self.target.device)))[0][0]
        return self._kept[ids]

    def read(self, batch: Packed) -> tuple[Tensor, Tensor]:
        """Return the target's features and final-normed rows; drafters that learn together read a batch once."""
        target, taps = self.target, self.shape.target_layer_ids
        if target.newest is None or target.newest[0] is not batch or target.newest[1] != taps:
            bias = causal_bias(batch, target.dtype)
            target.newest = batch, taps, target.read(batch.ids.long(), batch.positions.long(), bias, taps)
        return target.newest[2]

    @torch.no_grad()
    def measure_scale(self, batches: list[Packed]) -> None:
        """Set the scale to one over the root of the mean square of each channel."""
        squares = torch.zeros_like(self.scale)
        for batch in batches:
            features = self.read(batch)[0].float()
            real = (batch.owners > 0)[..., None]
            squares += (features.square() * real).sum((0, 1)) / real.sum()
        scale = (squares / len(batches)).clamp(min=1e-12).rsqrt()
        self.trained.fc.weight.mul_(self.scale / scale if self.begun else 1.0)
        self.scale = scale

    @torch.no_grad()
    def folded(self) -> Trained:
        """Return a copy of the drafter that takes features as the target gives them, rounded as it is published."""
        drafter = self._make().to(self.target.device)
        drafter.load_state_dict(self.trained.state_dict())
        drafter.fc.weight.mul_(self.scale)
        for weight in drafter.parameters():
            weight.copy_(weight.bfloat16().float())
        return drafter.requires_grad_(False).eval()


class Learner(Reader):
    """A drafter of blocks in training."""

    def __init__(
        self, target: FrozenTarget, shape: Shape, options: LearningOptions, form: Form = Form("dflash")
    ) -> None:
        super().__init__(target, shape, options, partial(new_drafter, shape, form))
        # Rows of anchors have no label.
        self._labelled = options.pattern.numbers(target.device)[1].nonzero()[:, 0]
        self._layer: Callable[..., Tensor] = _layer_rows
        if options.compiled:
            self._layer = torch.compile(_layer_rows, dynamic=False)

    @property
    def drafter(self) -> BlockDrafter:
        """What is trained."""
        assert isinstance(self.trained, BlockDrafter)
        return self.trained

    def drafted(self, features: Tensor, batch: Packed, ids: Tensor, blocks: Blocks) -> Tensor:
        """Return the final-normed rows [batch, drafted, hidden] of blocks of tokens and masks `ids`."""
        drafter = self.drafter
        context = drafter.hidden_norm(drafter.fc(features * self.scale.to(features.dtype)))
        own, seen = (rotation_at(places.long(), self.shape) for places in (blocks.positions, batch.positions))
        x = self.target.embed(ids)
        with sdpa_kernel(BACKENDS):
            for layer in drafter.layers:
                x = self._layer(layer, x, context, own, seen, blocks.bias, blocks.offsets)
        normed: Tensor = drafter.norm(x)
        return normed

    def loss(self, batch: Packed, generator: torch.Generator) -> Tensor:
        """Return the loss over random blocks of a batch."""
        target, options = self.target, self.options
        blocks = draw_blocks(batch, options.pattern, generator, target.dtype)
        features, normed = self.read(batch)
        tokens = batch.ids.gather(1, blocks.places).long()
        ids = torch.where(blocks.offsets == 0, tokens, self.shape.mask_token_id)
        with torch.autocast(target.device.type, dtype=torch.bfloat16, enabled=target.dtype == torch.bfloat16):
            hidden = self.drafted(features, batch, ids, blocks)
        behind = (blocks.places - 1).clamp(min=0)
        labels = Labels(
            normed=normed.gather(1, behind[..., None].expand(-1, -1, normed.shape[-1])),
            tokens=tokens,
            greedy=batch.greedy.gather(1, blocks.places),
            weights=blocks.asked * decay(blocks.offsets, options.gamma),
        )
        flat = Labels(*(value[:, self._labelled].flatten(0, 1) for value in labels))
        rows = hidden[:, self._labelled].flatten(0, 1).to(target.dtype)
        loss = draft_loss(rows, self.table, flat, options.temperature, options.chunk, self._judge)
        if self.drafter.pairs is None:
            return loss
        before = batch.ids.gather(1, behind).long()[:, self._labelled].flatten()
        return loss + self._pair_loss(Scored(rows, self.table, before), flat)

    def _pair_loss(self, scored: Scored, labels: Labels) -> Tensor:
        """Return the loss of some rows by what knows the token before."""
        pairs, options = self.drafter.pairs, self.options
        assert pairs is not None, "the kind has one"
        if self.progress < options.pairs_from:
            # Every weight takes part in every step, as the optimizer has it.
            return torch.stack([0.0 * weight.sum() for weight in pairs.parameters()]).sum()
        which = torch.randint(len(scored.rows), (options.pair_rows,), device=scored.rows.device)
        some = Scored(scored.rows[which], scored.table, scored.before[which])
        return pairs.loss(some, Labels(*(value[which] for value in labels)), options.temperature)


class Pupil:
    """A drafter with what its steps keep: momenta, the places it draws, and the loss so far."""

    def __init__(self, learner: Reader) -> None:
        options = learner.options
        self._learner = learner
        self._optimizer = Optimizer(learner.trained, options.muon_lr, options.adam_lr, options.clip)
        self._generator = torch.Generator(str(learner.target.device)).manual_seed(options.seed)
        self.journal = Journal(learner.name)

    def step(self, batch: Packed, step: int, reached: float) -> None:
        """Learn from a batch; `reached` is the share of the budget that is spent then."""
        learner, before = self._learner, self._learner.progress
        loss = learner.loss(batch, self._generator)
        self._optimizer.step(loss, _rate(before, learner.options.warmup), reached)
        learner.progress = min(1.0, reached)
        self.journal.note(loss, step, learner.progress)


def learn(learner: Reader, packed: Packed, report: Callable[[int, float], None]) -> int:
    """Train until the budget is spent and return the steps made; now and then `report` is given steps and seconds."""
    return learn_together([learner], packed, report)


def learn_together(learners: Sequence[Reader], packed: Packed, report: Callable[[int, float], None]) -> int:
    """The same of several drafters by the options of the first: each learns from every batch, so that all have made as
    many steps on as much text.
    """
    options, device, begun = learners[0].options, str(learners[0].target.device), time.monotonic()
    batches = _batches(packed, options)
    first = [next(batches) for _ in range(RMS_BATCHES)]
    for learner in learners:
        learner.measure_scale(first)
    pupils = [Pupil(learner) for learner in learners]
    step, progress = 0, 0.0
    started = told = time.monotonic()
    while progress < 1.0:
        batch, step = next(batches), step + 1
        progress = max(step / options.steps, (time.monotonic() - begun) / options.seconds)
        for pupil in pupils:
            pupil.step(batch, step, progress)
        if step == 1:
            started = told = compiled_at(device)
        if step % 16 == 0 and device != "cpu":
            # The clock counts steps that are done, not those that wait.
            torch.cuda.synchronize()
        if time.monotonic() - told > options.report_seconds and progress < 1.0:
            report(step, time.monotonic() - started)
            told = time.monotonic()
    for pupil in pupils:
        pupil.journal.close(step)
    report(step, time.monotonic() - started)
    return step


def _layer_rows(
    layer: DraftLayer, x: Tensor, context: Tensor, own: Rotation, seen: Rotation, bias: Tensor, offsets: Tensor
) -> Tensor:
    """Return rows after a layer: each attends to what `bias` leaves of the context and of all rows."""
    mixed: Tensor
    if not isinstance(layer, ConvLayer):
        x = x + _mix(layer, layer.input_layernorm(x), context, own, seen, bias)
        mixed = layer.mlp(layer.post_attention_layernorm(x))
        return x + mixed
    entering, kernels = layer.attention_conv.entering(layer.input_layernorm(x), offsets)
    mixed = _mix(layer, entering, context, own, seen, bias)
    x = x + layer.attention_conv.leaving(mixed, kernels, offsets)
    entering, kernels = layer.mlp_conv.entering(layer.post_attention_layernorm(x), offsets)
    return x + layer.mlp_conv.leaving(layer.mlp(entering), kernels, offsets)


def _mix(layer: DraftLayer, rows: Tensor, context: Tensor, own: Rotation, seen: Rotation, bias: Tensor) -> Tensor:
    attention = layer.self_attn
    pairs = attention.keys_values(context, seen), attention.keys_values(rows, own)
    keys, values = (
        torch.cat(both, dim=2).repeat_interleave(attention.groups, dim=1) for both in zip(*pairs, strict=True)
    )
    mixed = F.scaled_dot_product_attention(attention.queries(rows, own), keys, values, attn_mask=bias)
    out: Tensor = attention.o_proj(mixed.transpose(1, 2).flatten(-2))
    return out


def _batches(packed: Packed, options: LearningOptions) -> Iterator[Packed]:
    """Shuffle rows anew each time round; the last ones that make no batch wait for the next round."""
    device, share = packed.ids.device, min(options.rows, len(packed.ids))
    chooser = torch.Generator(device).manual_seed(options.seed)
    while True:
        order = torch.randperm(len(packed.ids), generator=chooser, device=device)
        for which in order.split(share):
            if len(which) == share:
                yield packed.rows(which)


def _rate(progress: float, warmup: float) -> float:
    if progress < warmup:
        return max(0.01, progress / warmup)
    return max(0.0, (1.0 - progress) / (1.0 - warmup))
