"""The drafter's training text: what the target itself writes, with its features."""

import copy
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from models.training.settings import Settings
from models.training.target import Target
from models.training.workers import rank


@dataclass(frozen=True)
class Sampling:
    """How rows are continued: the first `greedy_rows` by argmax, the others at a temperature."""

    greedy_rows: int
    temperature: float
    generator: torch.Generator


@dataclass(frozen=True)
class Shard:
    """Sequences [rows, length], where their responses start, features [rows, length - 1, width]."""

    ids: Tensor
    start: int
    features: Tensor

    def save(self, path: Path) -> None:
        """Write the shard where `load_shards` finds it."""
        torch.save({"ids": self.ids, "start": self.start, "features": self.features}, path)


def load_shards(work: Path, device: str) -> list[Shard]:
    """Return every shard of the work folder: memory-mapped on a CPU, resident on a GPU (1.5 kB a token)."""
    saved = (torch.load(path, weights_only=True, mmap=True) for path in sorted(work.glob("shard-*.pt")))
    return [Shard(part["ids"].to(device), part["start"], part["features"].to(device)) for part in saved]


@torch.no_grad()
def continue_prompts(target: Target, prompts: Tensor, lengths: Tensor, total: int, sampling: Sampling) -> Shard:
    """Extend right-padded prompts [rows, tokens] to a total length, keeping all features."""
    rows, start = prompts.shape[0], int(lengths.min())
    ids = torch.zeros((rows, total), dtype=torch.long, device=prompts.device)
    ids[:, : prompts.shape[1]] = prompts
    cache = target.new_cache(rows, total)
    logits, taps = target.step(ids[:, :start], 0, cache)
    features = taps.new_empty((rows, total - 1, taps.shape[-1]), dtype=cache[0][0].dtype)
    features[:, :start] = taps
    for place in range(start, total):
        picked = _pick(logits[:, -1].float(), target.shape.mask_token_id, sampling)
        ids[:, place] = torch.where(place < lengths, ids[:, place], picked)
        if place < total - 1:
            logits, taps = target.step(ids[:, place : place + 1], place, cache)
            features[:, place] = taps[:, 0]
    return Shard(ids.int(), start, features)


def generate(settings: Settings, target: Target, stream: Tensor) -> int:
    """Write shards of greedy and of sampled text until the budget is spent."""
    options, device = settings.generate, settings.device
    rows, seed = options.batch // settings.workers, settings.seed + 1_000_003 * rank()
    chooser = torch.Generator().manual_seed(seed)
    sampling = Sampling(
        int(rows * options.greedy_share),
        options.temperature,
        torch.Generator(device).manual_seed(seed),
    )
    writer = copy.deepcopy(target).bfloat16()
    started, tokens, index = time.monotonic(), 0, 0
    while tokens < options.tokens // settings.workers and time.monotonic() - started < 60.0 * options.minutes:
        prompts, lengths = draw_prompts(settings, stream, chooser)
        shard = continue_prompts(writer, prompts, lengths, options.length, sampling)
        cpu = Shard(shard.ids.cpu(), shard.start, shard.features.cpu())
        cpu.save(settings.work / f"shard-{rank()}-{index:04d}.pt")
        tokens, index = tokens + rows * (options.length - shard.start), index + 1
        print(f"generated {tokens} tokens, {time.monotonic() - started:.0f} s", flush=True)
    return tokens


def draw_prompts(settings: Settings, stream: Tensor, chooser: torch.Generator) -> tuple[Tensor, Tensor]:
    """Cut a batch of prompts [rows, tokens], all of one random length, and return that length [rows] beside it."""
    options, device = settings.generate, settings.device
    rows = options.batch // settings.workers
    size = int(torch.randint(options.shortest_prompt, options.longest_prompt + 1, (1,), generator=chooser))
    places = torch.randint(len(stream) - size, (rows, 1), generator=chooser)
    prompts = stream[places + torch.arange(size)].long().to(device)
    return prompts, torch.full((rows,), size, device=device)


def _pick(logits: Tensor, banned: int, sampling: Sampling) -> Tensor:
    logits[:, banned] = -torch.inf
    noise = torch.empty_like(logits[sampling.greedy_rows :]).exponential_(generator=sampling.generator)
    sampled = logits[sampling.greedy_rows :] / sampling.temperature - noise.log()
    return torch.cat((logits[: sampling.greedy_rows].argmax(-1), sampled.argmax(-1)))
