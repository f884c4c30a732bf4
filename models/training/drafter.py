"""The DFlash drafter: one non-causal forward over [anchor, mask x K], and its training."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.training.generate import Shard, load_shards
from models.training.journal import Journal, compiled_at
from models.training.network import (
    Layer,
    Projections,
    RMSNorm,
    Rotation,
    fold,
    init_weights,
    rotation_at,
    round_weights,
)
from models.training.optimizer import Optimizer
from models.training.settings import Settings, Shape
from models.training.target import CHECKPOINT_SECONDS, Target
from models.training.workers import rank


class DraftLayer(Layer):
    """One layer of the drafter."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.self_attn = Projections(shape)


class Drafter(nn.Module):
    """Its state dict is the published DFlash layout; embeddings and head are the target's."""

    def __init__(self, target: Shape) -> None:
        super().__init__()
        self.shape = shape = target.dense
        width = shape.hidden_size
        self.fc = nn.Linear(width * len(shape.target_layer_ids), width, bias=False)
        self.hidden_norm = RMSNorm(width, shape.rms_norm_eps)
        self.norm = RMSNorm(width, shape.rms_norm_eps)
        self.layers = nn.ModuleList(DraftLayer(shape) for _ in range(shape.draft_layers))
        init_weights(self)

    def forward(self, features: Tensor, anchors: Tensor, embeddings: Tensor) -> Tensor:
        """Return the hidden rows 1.. of every block.

        features [batch, context, fused width], anchors [batch, blocks] (positions),
        embeddings [batch, blocks * block_size, hidden] -> [batch, blocks, K, hidden].
        """
        size = self.shape.block_size
        context = self.hidden_norm(self.fc(features))
        places = torch.arange(features.shape[1], device=anchors.device)
        rows = (anchors[..., None] + torch.arange(size, device=anchors.device)).flatten(1)
        view = View(
            own=rotation_at(rows, self.shape),
            seen=rotation_at(places, self.shape),
            visible=(places < anchors[..., None]).repeat_interleave(size, dim=1)[:, None],
            size=size,
        )
        x = embeddings
        for layer in self.layers:
            assert isinstance(layer, DraftLayer)
            x = x + _attend(layer, layer.input_layernorm(x), context, view)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        return fold(self.norm(x), 1, size)[:, :, 1:]


@dataclass(frozen=True)
class View:
    """What the rows of the blocks may attend to, and where everything stands."""

    own: Rotation
    seen: Rotation
    visible: Tensor
    size: int

    def split(self, rows: Tensor) -> Tensor:
        """Fold [batch, heads, blocks * size, ...] into blocks."""
        return fold(rows, 2, self.size)


def _attend(layer: DraftLayer, x: Tensor, context: Tensor, view: View) -> Tensor:
    """Let every block see the context before its anchor and its own rows, nothing else."""
    attention = layer.self_attn
    q = attention.queries(x, view.own) * attention.head_dim**-0.5
    own_k, own_v = _spread(attention, attention.keys_values(x, view.own))
    seen_k, seen_v = _spread(attention, attention.keys_values(context, view.seen))
    inside = view.split(q) @ view.split(own_k).transpose(-1, -2)
    before = (q @ seen_k.transpose(-1, -2)).masked_fill(~view.visible, -torch.inf)
    scores = torch.cat((before, inside.flatten(2, 3)), dim=-1).float().softmax(-1).to(q.dtype)
    among, within = torch.split(scores, [seen_k.shape[2], view.size], dim=-1)
    mixed = among @ seen_v + (view.split(within) @ view.split(own_v)).flatten(2, 3)
    out: Tensor = attention.o_proj(mixed.transpose(1, 2).flatten(-2))
    return out


def _spread(attention: Projections, pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    keys, values = pair
    groups = attention.groups
    return keys.repeat_interleave(groups, dim=1), values.repeat_interleave(groups, dim=1)


@dataclass(frozen=True)
class Blocks:
    """A training batch: context features, anchor positions, the tokens of every block."""

    features: Tensor
    anchors: Tensor
    tokens: Tensor
    inside: Tensor


def cut_blocks(ids: Tensor, features: Tensor, anchors: Tensor, size: int) -> Blocks:
    """Gather the tokens at anchor + 0.. and mark those inside the sequence."""
    places = anchors[..., None] + torch.arange(size, device=ids.device)
    inside = places < ids.shape[1]
    clipped = places.clamp(max=ids.shape[1] - 1).flatten(1)
    tokens = fold(ids.gather(1, clipped), 1, size)
    return Blocks(features, anchors, tokens, inside)


def block_embeddings(target: Target, tokens: Tensor) -> Tensor:
    """Embed [anchor, mask x K] with the target's table; [batch, blocks * size, hidden]."""
    masked = torch.full_like(tokens, target.shape.mask_token_id)
    masked[..., 0] = tokens[..., 0]
    embedded: Tensor = target.model.embed_tokens(masked.flatten(1))
    return embedded


def block_loss(hidden: Tensor, table: Tensor, tokens: Tensor, inside: Tensor, gamma: float) -> Tensor:
    """Return the weighted cross-entropy of rows 1.. against the tokens at their positions; `table` is the head."""
    logits = F.linear(hidden, table).float().flatten(0, 2)
    decay = torch.exp(-torch.arange(hidden.shape[2], device=hidden.device) / gamma)
    weights = (inside[..., 1:] * decay).flatten()
    losses = F.cross_entropy(logits, tokens[..., 1:].flatten(), reduction="none")
    return (losses * weights).sum() / weights.sum()


def train_drafter(settings: Settings, target: Target) -> Drafter:
    """Train on the shards of the work folder until the budget is spent; starts from its checkpoint, if any."""
    options, device = settings.drafter, settings.device
    torch.manual_seed(settings.seed)
    drafter = Drafter(settings.shape).to(device)
    checkpoint = settings.work / "drafter.pt"
    if checkpoint.exists():
        drafter.load_state_dict(torch.load(checkpoint, weights_only=True))
    else:
        drafter.norm.weight.data.copy_(target.model.norm.weight + target.model.norm.offset)
    optimizer = Optimizer(drafter, options.muon_lr, options.adam_lr, options.clip)
    batches = _batches(load_shards(settings.work, device), settings)
    model = torch.compile(drafter, dynamic=False, disable=not settings.compiled)
    loss_of = torch.compile(block_loss, dynamic=False, disable=not settings.compiled)
    journal = Journal("drafter")
    started = saved = time.monotonic()
    step, progress, table = 0, 0.0, target.model.embed_tokens.weight
    while progress < 1.0:
        blocks = next(batches)
        with torch.autocast(torch.device(device).type, dtype=torch.bfloat16):
            embedded = block_embeddings(target, blocks.tokens)
            hidden = model(blocks.features, blocks.anchors, embedded)
            loss = loss_of(hidden, table, blocks.tokens, blocks.inside, options.gamma)
        step += 1
        reached = options.budget.progress(step, time.monotonic() - started)
        progress = optimizer.step(loss, _schedule(progress, options.warmup), reached)
        journal.note(loss, step, progress)
        if step == 1:
            started, progress = compiled_at(device), 0.0
        if rank() == 0 and time.monotonic() - saved > CHECKPOINT_SECONDS:
            torch.save(drafter.state_dict(), checkpoint)
            saved = time.monotonic()
    if rank() == 0:
        torch.save(drafter.state_dict(), checkpoint)
    journal.close(step)
    return drafter


def load_drafter(settings: Settings) -> Drafter:
    """Return the trained drafter, rounded as it is published."""
    drafter = Drafter(settings.shape)
    drafter.load_state_dict(torch.load(settings.work / "drafter.pt", weights_only=True))
    round_weights(drafter)
    return drafter.requires_grad_(False).to(settings.device).eval()


def _batches(shards: list[Shard], settings: Settings) -> Iterator[Blocks]:
    """Every batch is of one shard: its rows are gathered in one launch."""
    share = settings.drafter.batch // settings.workers
    chooser = torch.Generator().manual_seed(settings.seed + 1_000_003 * rank())
    drawer = torch.Generator(settings.device).manual_seed(settings.seed + 1_000_003 * rank())
    while True:
        pieces = [
            (shard, rows)
            for shard in shards
            for rows in torch.split(torch.randperm(len(shard.ids), generator=chooser).to(settings.device), share)
            if len(rows) == share
        ]
        for index in torch.randperm(len(pieces), generator=chooser).tolist():
            yield _gather(pieces[index], drawer, settings)


def _gather(piece: tuple[Shard, Tensor], generator: torch.Generator, settings: Settings) -> Blocks:
    (shard, rows), device = piece, settings.device
    ids, features = shard.ids[rows].long(), shard.features[rows]
    places = torch.arange(ids.shape[1], device=device)
    allowed = (places >= shard.start) & (places < ids.shape[1] - 1)
    draw = torch.rand(ids.shape, generator=generator, device=device).masked_fill(~allowed, -1.0)
    anchors = draw.topk(settings.drafter.anchors, dim=1).indices
    return cut_blocks(ids, features, anchors, settings.shape.block_size)


def _schedule(progress: float, warmup: float) -> float:
    if progress < warmup:
        return max(0.01, progress / warmup)
    return max(0.0, (1.0 - progress) / (1.0 - warmup))
