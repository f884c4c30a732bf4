"""The target: a small Qwen3 or a hybrid like Qwen3.5, and its training loop."""

import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.training.blocks import Block, Cache
from models.training.journal import Journal, compiled_at
from models.training.network import RMSNorm, Span, init_weights, rotation_at, round_weights
from models.training.optimizer import Optimizer
from models.training.settings import Settings, Shape
from models.training.workers import rank

CHECKPOINT_SECONDS = 120.0


class Backbone(nn.Module):
    """Embeddings, layers and the final norm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Block(shape, index) for index in range(shape.num_layers))
        self.norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps, shape.norm_offset)


class Target(nn.Module):
    """A causal language model; its state dict is the Hugging Face layout."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Backbone(shape)
        init_weights(self)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits of every row of whole sequences."""
        return self.head(self.model.norm(self.residuals(ids)[-1]))

    def head(self, normed: Tensor) -> Tensor:
        """Return the logits of final-normed rows."""
        return F.linear(normed, self.model.embed_tokens.weight)

    def residuals(self, ids: Tensor) -> list[Tensor]:
        """Return the residual stream after every layer."""
        rows = ids.shape[1]
        span = Span(0, rows, rotation_at(torch.arange(rows, device=ids.device), self.shape), None)
        x = self.model.embed_tokens(ids)
        streams: list[Tensor] = []
        for layer in self.model.layers:
            x = layer(x, span)
            streams.append(x)
        return streams

    def new_cache(self, batch: int, length: int) -> list[Cache]:
        """Return the empty cache of every layer, in the dtype of the weights."""
        weight = self.model.embed_tokens.weight
        return [layer.mixer.new_cache(weight, batch, length) for layer in self._blocks()]

    def step(self, ids: Tensor, start: int, cache: list[Cache]) -> tuple[Tensor, Tensor]:
        """Run rows at positions start.. and return their logits and features."""
        end = start + ids.shape[1]
        rows = torch.arange(start, end, device=ids.device)
        visible = None if end - start == 1 else torch.arange(end, device=ids.device) <= rows[:, None]
        span = Span(start, end, rotation_at(rows, self.shape), visible)
        x = self.model.embed_tokens(ids)
        taps: list[Tensor] = []
        for index, (layer, kept) in enumerate(zip(self._blocks(), cache, strict=True)):
            x = layer.step(x, span, kept)
            if index in self.shape.target_layer_ids:
                taps.append(x)
        return self.head(self.model.norm(x)), torch.cat(taps, dim=-1)

    def _blocks(self) -> Iterator[Block]:
        for layer in self.model.layers:
            assert isinstance(layer, Block)
            yield layer


def next_token_loss(hidden: Tensor, table: Tensor, ids: Tensor) -> Tensor:
    """Return the cross-entropy of the tokens that follow final-normed rows; `table` is the tied head."""
    return F.cross_entropy(F.linear(hidden, table).flatten(0, 1).float(), ids.flatten())


def train_target(settings: Settings, train: Tensor) -> Target:
    """Train until the budget is spent; resumes from the last checkpoint of the work folder."""
    options, device = settings.target, settings.device
    torch.manual_seed(settings.seed)
    # Of the delta rule's products: the others are in bfloat16.
    torch.set_float32_matmul_precision("high")
    target = Target(settings.shape).to(device)
    optimizer = Optimizer(target, options.muon_lr, options.adam_lr, options.clip)
    checkpoint = settings.work / "target.pt"
    step, tokens, used = _restore(checkpoint, target, optimizer)
    share = options.batch_tokens // settings.workers
    seed = settings.seed + step + 1_000_003 * rank()
    stream = train.to(device)
    short, long = (_batches(stream, share // length, length, seed) for length in options.lengths)
    if settings.compiled:
        # By block: blocks of a kind share one program.
        for layer in target.model.layers:
            layer.compile(dynamic=False)
    loss_of = torch.compile(next_token_loss, dynamic=False, disable=not settings.compiled)
    journal, first = Journal("target"), step
    started = saved = time.monotonic()
    progress = options.budget.progress(step, used)
    while progress < 1.0:
        ids = next(long if progress >= options.long_from else short)
        with torch.autocast(torch.device(device).type, dtype=torch.bfloat16):
            hidden = target.model.norm(target.residuals(ids[:, :-1])[-1])
            loss = loss_of(hidden, target.model.embed_tokens.weight, ids[:, 1:])
        step, tokens = step + 1, tokens + options.batch_tokens
        reached = options.budget.progress(step, time.monotonic() - started + used)
        progress = optimizer.step(loss, _schedule(progress, options.warmup, options.decay_from), reached)
        journal.note(loss, step, progress)
        if step == first + 1:
            started, progress = compiled_at(device), options.budget.progress(step, used)
        if rank() == 0 and time.monotonic() - saved > CHECKPOINT_SECONDS:
            _save(checkpoint, target, optimizer, (step, tokens, time.monotonic() - started + used))
            saved = time.monotonic()
    if rank() == 0:
        _save(checkpoint, target, optimizer, (step, tokens, time.monotonic() - started + used))
    journal.close(step)
    torch.set_float32_matmul_precision("highest")
    return target


@torch.no_grad()
def held_out_loss(target: Target, stream: Tensor, device: str, length: int = 512) -> float:
    """Return the mean cross-entropy per token over windows of the held-out stream."""
    windows = stream[: len(stream) // (length + 1) * (length + 1)].view(-1, length + 1).long()
    total = 0.0
    for chunk in torch.split(windows, 16):
        ids = chunk.to(device)
        logits = target(ids[:, :-1])
        total += F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="sum").item()
    return total / (windows.shape[0] * length)


def load_target(settings: Settings) -> Target:
    """Return the frozen target of the last checkpoint, rounded as it is published."""
    target = Target(settings.shape)
    target.load_state_dict(torch.load(settings.work / "target.pt", weights_only=True)["model"])
    round_weights(target)
    return target.requires_grad_(False).to(settings.device).eval()


def _batches(stream: Tensor, batch: int, length: int, seed: int) -> Iterator[Tensor]:
    generator, place = torch.Generator().manual_seed(seed), stream.device
    span = length + 1
    while True:
        offset = int(torch.randint(span, (1,), generator=generator))
        count = (len(stream) - offset) // span
        windows = stream[offset : offset + count * span].view(count, span)
        for rows in torch.split(torch.randperm(count, generator=generator).to(place), batch):
            if len(rows) == batch:
                yield windows[rows].long()


def _schedule(progress: float, warmup: float, decay_from: float) -> float:
    if progress < warmup:
        return max(0.01, progress / warmup)
    return min(1.0, max(0.0, (1.0 - progress) / (1.0 - decay_from)))


def _restore(path: Path, target: Target, optimizer: Optimizer) -> tuple[int, int, float]:
    if not path.exists():
        return 0, 0, 0.0
    state = torch.load(path, weights_only=True)
    target.load_state_dict(state["model"])
    optimizer.load_state(state["optimizer"])
    step, tokens, used = state["clock"]
    return int(step), int(tokens), float(used)


def _save(path: Path, target: Target, optimizer: Optimizer, clock: tuple[int, int, float]) -> None:
    state = {"model": target.state_dict(), "optimizer": optimizer.state(), "clock": clock}
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    partial.replace(path)
