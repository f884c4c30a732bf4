"""Offline acceptance of a drafter: texts are written once, and speculative rounds are replayed over them.

What a text says depends on the target alone, so drafts count while they equal it. Tau is the mean number of tokens of a
round, the target's own included.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from models.training.foreign.learning import Learner
from models.training.foreign.packing import Blocks, Packed


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


def lookup_table(ids: list[int], start: int, end: int, drafts: int) -> list[int]:
    """Return how many drafts of prompt lookup are right at each anchor."""
    return [_looked_up(ids, anchor, drafts) for anchor in range(start, end)]


def _looked_up(ids: list[int], anchor: int, drafts: int) -> int:
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


@torch.no_grad()
def hits_of(learner: Learner, answer: Answer, size: int, foreign: Tensor | None = None) -> Tensor:
    """Return which drafts [anchors, size - 1] equal the text, for every anchor of the answer.

    `foreign` are features of another text [tokens, features] to be put in place of the text's own: the control.
    """
    ids = torch.tensor(answer.ids, dtype=torch.int32, device=learner.target.device)
    batch = Packed.single(ids)
    features, _ = learner.read(batch)
    if foreign is not None:
        features = foreign[torch.arange(len(ids), device=ids.device) % len(foreign)][None]
    blocks = _blocks(batch, answer.start, size, features.dtype)
    tokens = batch.ids.gather(1, blocks.places).long()
    given = torch.where(blocks.offsets == 0, tokens, learner.shape.mask_token_id)
    with torch.autocast(ids.device.type, dtype=torch.bfloat16, enabled=features.dtype == torch.bfloat16):
        rows = learner.drafted(features, batch, given, blocks)[0]
    rows = rows.unflatten(0, (-1, size))[:, 1:].to(features.dtype)
    drafts = torch.cat([learner.target.head(part).argmax(-1) for part in rows.split(64)])
    places = torch.arange(answer.start, len(ids), device=ids.device)[:, None] + torch.arange(1, size, device=ids.device)
    return (drafts == ids[places.clamp(max=len(ids) - 1)]) & (places < len(ids))


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
