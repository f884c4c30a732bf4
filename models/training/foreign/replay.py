"""Offline acceptance of a drafter: texts are written once, and speculative rounds are replayed over them.

What a text says depends on the target alone, so drafts count while they equal it. Tau is the mean number of tokens of a
round, the target's own included.
"""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from models.training.foreign.learning import Learner
from models.training.foreign.packing import Blocks, Packed
from models.training.foreign.pair_heads import ArgmaxPairs, Scored
from services.common.model.drafters.nodes import Candidates, choose_nodes

_AT_ONCE = 64
"""Anchors whose logits live at a time."""


@dataclass(frozen=True)
class Answer:
    """A text's tokens, where its answer starts, and what kind of prompt it answers; `end` is where it first repeats."""

    ids: list[int]
    start: int
    kind: str
    end: int


def accepted_table(hits: Tensor) -> list[int]:
    """Return how many drafts of each anchor are right before the first wrong one, of [anchors, drafts]."""
    counted: list[int] = hits.int().cumprod(1).sum(1).tolist()
    return counted


def walk(accepted: list[int], start: int, end: int) -> tuple[int, int]:
    """Return rounds and tokens from the anchor `start` until the token before `end` is committed.

    `accepted` counts right drafts for the anchors `start`, `start + 1`, ...; a round commits them and one token more,
    but no token past the end.
    """
    rounds = tokens = 0
    anchor = start
    while anchor < end - 1:
        made = min(accepted[anchor - start] + 1, end - 1 - anchor)
        anchor, rounds, tokens = anchor + made, rounds + 1, tokens + made
    return rounds, tokens


def reached(accepted: list[int], start: int, end: int, drafts: int) -> tuple[int, list[int]]:
    """Return the rounds of `walk`, and for each place how many of them have right drafts up to it."""
    counts, anchor, rounds = [0] * drafts, start, 0
    while anchor < end - 1:
        right = accepted[anchor - start]
        counts = [count + (place < right) for place, count in enumerate(counts)]
        anchor, rounds = anchor + right + 1, rounds + 1
    return rounds, counts


@cache
def lookup_table(ids: tuple[int, ...], start: int, end: int, drafts: int) -> list[int]:
    """Return how many drafts of prompt lookup are right at each anchor."""
    return [_looked_up(ids, anchor, drafts) for anchor in range(start, end)]


def _looked_up(ids: tuple[int, ...], anchor: int, drafts: int) -> int:
    """Propose what followed the same few tokens before."""
    for width in (3, 2, 1):
        suffix = ids[anchor + 1 - width : anchor + 1]
        for end in range(anchor - 1, width - 2, -1):
            if ids[end + 1 - width : end + 1] == suffix:
                right = 0
                while (
                    right < min(drafts, anchor - end)
                    and anchor + 1 + right < len(ids)
                    and ids[end + 1 + right] == ids[anchor + 1 + right]
                ):
                    right += 1
                return right
    return 0


@dataclass(frozen=True)
class Asked:
    """What a drafter made of blocks at each anchor: rows [anchors, drafts, hidden], and the anchors' tokens."""

    rows: Tensor
    anchors: Tensor


@torch.no_grad()
def ask(learner: Learner, answer: Answer, size: int, foreign: Tensor | None = None) -> Asked:
    """Draft a block of `size` rows at every anchor of an answer.

    `foreign` are features of another text [tokens, features] to be put in place of the text's own: the control.
    """
    ids = torch.tensor(answer.ids, dtype=torch.int32, device=learner.target.device)
    batch = Packed.single(ids)
    features = learner.features(tuple(answer.ids))[None]
    if foreign is not None:
        features = foreign[torch.arange(len(ids), device=ids.device) % len(foreign)][None]
    blocks = _blocks(batch, answer.start, size, features.dtype)
    tokens = batch.ids.gather(1, blocks.places).long()
    given = torch.where(blocks.offsets == 0, tokens, learner.shape.mask_token_id)
    with torch.autocast(ids.device.type, dtype=torch.bfloat16, enabled=features.dtype == torch.bfloat16):
        rows = learner.drafted(features, batch, given, blocks)[0]
    return Asked(rows.unflatten(0, (-1, size))[:, 1:].to(features.dtype), ids[answer.start :].long())


@torch.no_grad()
def hits_of(learner: Learner, answer: Answer, asked: Asked, alone: bool = False) -> Tensor:
    """Return which drafts [anchors, drafts] of a chain equal the text, for every anchor of the answer.

    A draft counts behind right ones only, so the token before it is the text's. With `alone` no token before counts.
    """
    ids, count = torch.tensor(answer.ids, device=asked.rows.device), asked.rows.shape[1]
    places = torch.arange(answer.start, len(ids), device=ids.device)[:, None] + torch.arange(count, device=ids.device)
    before = ids[places.clamp(max=len(ids) - 1)]
    head = ArgmaxPairs() if alone else learner.drafter.head
    drafts = torch.cat(
        [
            head.best(Scored(rows.flatten(0, 1), learner.table, known.flatten())).view(len(rows), -1)
            for rows, known in zip(asked.rows.split(_AT_ONCE), before.split(_AT_ONCE), strict=True)
        ]
    )
    following = places + 1
    return (drafts == ids[following.clamp(max=len(ids) - 1)]) & (following < len(ids))


@torch.no_grad()
def walk_trees(learner: Learner, answer: Answer, asked: Asked, nodes: int) -> tuple[int, int]:
    """Return rounds and tokens of an answer when each round brings the best tree of so many drafts."""
    found = [
        learner.drafter.head.rank(rows, learner.table, anchors)
        for rows, anchors in zip(asked.rows.split(_AT_ONCE), asked.anchors.split(_AT_ONCE), strict=True)
    ]
    ids, scores = torch.cat([one.ids_BKC for one in found]).cpu(), torch.cat([one.scores_BKPC for one in found]).cpu()
    anchor, end, rounds = answer.start, len(answer.ids), 0
    while anchor < end - 1:
        at = slice(anchor - answer.start, anchor - answer.start + 1)
        tokens, parents = choose_nodes(Candidates(ids[at], scores[at]), nodes)
        right = followed(tokens[0].tolist(), parents[0].tolist(), answer.ids[anchor + 1 :])
        anchor, rounds = min(anchor + right + 1, end - 1), rounds + 1
    return rounds, end - 1 - answer.start


def followed(tokens: list[int], parents: list[int], truth: list[int]) -> int:
    """Return how far a text goes along the drafts of a tree, whose rows are numbered from 1 on."""
    row = depth = 0
    for draft, (token, parent) in enumerate(zip(tokens, parents, strict=True), start=1):
        if parent == row and depth < len(truth) and token == truth[depth]:
            row, depth = draft, depth + 1
    return depth


def _blocks(batch: Packed, start: int, size: int, dtype: torch.dtype) -> Blocks:
    """Return a block at every token from `start` on."""
    length, device = batch.ids.shape[1], batch.ids.device
    anchor = torch.arange(start, length, device=device).repeat_interleave(size)
    offset = torch.arange(size, device=device).repeat(length - start)
    seen = torch.arange(length, device=device) < anchor[:, None]
    within = anchor[:, None] == anchor
    bias = torch.zeros((), dtype=dtype, device=device).masked_fill(~torch.cat((seen, within), dim=1), -torch.inf)
    places = (anchor + offset).clamp(max=length - 1)
    return Blocks(places[None], (anchor + offset)[None], bias[None, None], offset[None] > 0, offset)
