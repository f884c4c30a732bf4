"""The target: a small dense Qwen3 and its training loop."""

import math
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.training.network import Layer, RMSNorm, init_weights, rotation_at, round_weights
from models.training.optimizer import Optimizer
from models.training.settings import Settings, Shape
from models.training.workers import rank

CHECKPOINT_SECONDS = 120.0
LOG_SECONDS = 20.0
Cache = tuple[Tensor, Tensor]


class Backbone(nn.Module):
    """Embeddings, layers and the final norm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.num_layers))
        self.norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)


class Target(nn.Module):
    """Qwen3 for causal language modelling; its state dict is the Hugging Face layout."""

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
        positions = torch.arange(ids.shape[1], device=ids.device)
        rotation = rotation_at(positions, self.shape)
        x = self.model.embed_tokens(ids)
        streams: list[Tensor] = []
        for layer in self._layers():
            attention, normed = layer.self_attn, layer.input_layernorm(x)
            k, v = attention.keys_values(normed, rotation)
            x = x + attention.attend_causal(attention.queries(normed, rotation), k, v)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
            streams.append(x)
        return streams

    def new_cache(self, batch: int, length: int) -> list[Cache]:
        """Return zeroed key and value buffers for every layer, in the dtype of the weights."""
        size = (batch, self.shape.num_kv_heads, length, self.shape.head_dim)
        weight = self.model.embed_tokens.weight
        return [(weight.new_zeros(size), weight.new_zeros(size)) for _ in self.model.layers]

    def step(self, ids: Tensor, start: int, cache: list[Cache]) -> tuple[Tensor, Tensor]:
        """Run rows at positions start.. and return their logits and features."""
        end = start + ids.shape[1]
        rows = torch.arange(start, end, device=ids.device)
        rotation = rotation_at(rows, self.shape)
        mask = None if end - start == 1 else torch.arange(end, device=ids.device) <= rows[:, None]
        x = self.model.embed_tokens(ids)
        taps: list[Tensor] = []
        for index, (layer, (keys, values)) in enumerate(zip(self._layers(), cache, strict=True)):
            attention, normed = layer.self_attn, layer.input_layernorm(x)
            k, v = attention.keys_values(normed, rotation)
            keys[:, :, start:end], values[:, :, start:end] = k, v
            q = attention.queries(normed, rotation)
            x = x + attention.attend_cached(q, keys[:, :, :end], values[:, :, :end], mask)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
            if index in self.shape.target_layer_ids:
                taps.append(x)
        return self.head(self.model.norm(x)), torch.cat(taps, dim=-1)

    def _layers(self) -> Iterator[Layer]:
        for layer in self.model.layers:
            assert isinstance(layer, Layer)
            yield layer


def train_target(settings: Settings, train: Tensor) -> Target:
    """Train until the budget is spent; resumes from the last checkpoint of the work folder."""
    options, device = settings.target, settings.device
    torch.manual_seed(settings.seed)
    target = Target(settings.shape).to(device)
    optimizer = Optimizer(target, options.muon_lr, options.adam_lr, options.clip)
    checkpoint = settings.work / "target.pt"
    step, tokens, used = _restore(checkpoint, target, optimizer)
    share = options.batch_tokens // settings.workers
    seed = settings.seed + step + 1_000_003 * rank()
    short, long = (_batches(train, share // length, length, seed) for length in options.lengths)
    model = torch.compile(target, dynamic=False, disable=not settings.compiled)
    started = saved = logged = time.monotonic()
    progress, average = options.budget.progress(step, used), float("nan")
    while progress < 1.0:
        ids = next(long if progress >= options.long_from else short).to(device)
        with torch.autocast(torch.device(device).type, dtype=torch.bfloat16):
            logits = model(ids[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())
        step, tokens = step + 1, tokens + options.batch_tokens
        now = time.monotonic()
        reached = options.budget.progress(step, now - started + used)
        progress = optimizer.step(loss, _schedule(progress, options.warmup, options.decay_from), reached)
        average = loss.item() if math.isnan(average) else 0.95 * average + 0.05 * loss.item()
        if rank() == 0 and now - logged > LOG_SECONDS:
            print(f"target step {step} tokens {tokens} progress {progress:.3f} loss {average:.3f}", flush=True)
            logged = now
        if rank() == 0 and now - saved > CHECKPOINT_SECONDS:
            _save(checkpoint, target, optimizer, (step, tokens, now - started + used))
            saved = now
    if rank() == 0:
        _save(checkpoint, target, optimizer, (step, tokens, time.monotonic() - started + used))
        print(f"target done: steps {step} tokens {tokens} loss {average:.4f}", flush=True)
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
    generator = torch.Generator().manual_seed(seed)
    span = length + 1
    while True:
        offset = int(torch.randint(span, (1,), generator=generator))
        count = (len(stream) - offset) // span
        windows = stream[offset : offset + count * span].view(count, span)
        for rows in torch.split(torch.randperm(count, generator=generator), batch):
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
