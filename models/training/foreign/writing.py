"""The target writes: more texts than slots, one token a slot and step, a slot taking the next text when one ends."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from models.training.foreign.frozen import FrozenTarget

CHECKED = 32
"""Steps between two looks at the clock and at what is done."""


@dataclass(frozen=True)
class Writing:
    """How texts go on: at most `length` tokens with their beginning, to one of `stops`, in `slots` at a time.

    Tokens less likely than `min_p` times the likeliest are not drawn.
    """

    length: int
    slots: int
    stops: tuple[int, ...]
    min_p: float = 0.0


class Desk:
    """Texts [count + 1, length] on the device, where each slot stands, and the cache of all slots; the last is idle."""

    def __init__(
        self, target: FrozenTarget, begun: Sequence[Sequence[int]], temperatures: Sequence[float], options: Writing
    ) -> None:
        device, count = target.device, len(begun)
        self.target, self.count, self.options = target, count, options
        self.slots = min(options.slots, count)
        self.ids = torch.zeros((count + 1, options.length), dtype=torch.int32)
        for row, tokens in enumerate(begun):
            self.ids[row, : len(tokens)] = torch.tensor(tokens, dtype=torch.int32)
        self.ids = self.ids.to(device)
        self.lengths = torch.tensor([*map(len, begun), options.length], device=device)
        self.temperatures = torch.tensor([*temperatures, 0.0], device=device)
        self.ends = torch.zeros(count + 1, dtype=torch.long, device=device)
        self.stops = torch.tensor(options.stops, device=device)
        self.items = torch.arange(self.slots, device=device)
        self.taken = torch.tensor(self.slots, device=device)
        self.cache = target.new_cache(self.slots, options.length)
        self.shared = shared_length(begun)
        self.places = torch.zeros_like(self.items)
        self.pick: Callable[[Tensor, Tensor, float], Tensor] = _pick
        self._read_shared()

    def step(self) -> None:
        """Run one token of every slot; nothing waits for the device, so that a graph can hold it."""
        items, places = self.items, self.places
        logits = self.target.step(self.ids[items, places], places, self.cache)
        picked = self.pick(logits, self.temperatures[items], self.options.min_p)
        following = places + 1
        given = following < self.lengths[items]
        token = torch.where(given, self.ids[items, following].long(), picked)
        self.ids[items, following] = token.int()
        stopped = ~given & (token[:, None] == self.stops).any(1)
        done = stopped | (following + 1 >= self.options.length)
        self.ends[items] = torch.where(done, following + 1, self.ends[items])
        fresh = (self.taken + done.cumsum(0) - 1).clamp(max=self.count)
        self.taken.copy_((self.taken + done.sum()).clamp(max=self.count))
        self.items.copy_(torch.where(done, fresh, items))
        self.places.copy_(torch.where(done, self.shared, following))

    def _read_shared(self) -> None:
        """Put what all texts begin with into the cache of every slot, where it stays."""
        for place in range(self.shared):
            self.target.step(self.ids[self.items, place], torch.full_like(self.places, place), self.cache)
        self.places.fill_(self.shared)


def write(
    target: FrozenTarget,
    begun: Sequence[Sequence[int]],
    temperatures: Sequence[float],
    options: Writing,
    seconds: float,
    compiled: bool = False,
) -> tuple[Tensor, Tensor]:
    """Continue texts, each shorter than `options.length`, until all are done or the seconds are spent.

    Returns:
        Texts [count, length], and how many tokens each has [count]: 0 for those not finished by then.
    """
    started = time.monotonic()
    desk = Desk(target, begun, temperatures, options)
    if compiled:
        desk.pick = torch.compile(_pick, dynamic=False)
    step = _captured(desk) if target.device.type == "cuda" else desk.step
    steps = 0
    while time.monotonic() - started < seconds and not bool((desk.ends[:-1] > 0).all()):
        for _ in range(CHECKED):
            step()
        steps += CHECKED
    used, done = time.monotonic() - started, int((desk.ends[:-1] > 0).sum())
    print(f"written: {done} of {desk.count} texts, {steps} steps of {desk.slots} slots, {used:.1f} s", flush=True)
    return desk.ids[:-1], desk.ends[:-1]


def shared_length(begun: Sequence[Sequence[int]]) -> int:
    """Return how many tokens all texts begin with, the last token of the shortest not counted."""
    first, last = min(map(list, begun)), max(map(list, begun))
    most = min(map(len, begun)) - 1
    return next((at for at in range(most) if first[at] != last[at]), most)


def _captured(desk: Desk) -> Callable[[], None]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            desk.step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        desk.step()
    return graph.replay


def _pick(logits: Tensor, temperatures: Tensor, min_p: float) -> Tensor:
    """Return a token a row: the likeliest at temperature 0, else one drawn."""
    sampled = temperatures[:, None] > 0
    scores = logits.float() / torch.where(sampled, temperatures[:, None], 1.0)
    if min_p > 0:
        floor = scores.amax(-1, keepdim=True) + math.log(min_p)
        scores = torch.where(scores < floor, -torch.inf, scores)
    noise = -torch.log(-torch.log(torch.rand_like(scores)))
    return torch.where(sampled, scores + noise, scores).argmax(-1)
