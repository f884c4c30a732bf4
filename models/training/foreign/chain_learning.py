"""Training a chain of drafts: steps on its own states over packed conversations, towards what the target says."""

import torch
from torch import Tensor

from models.training.foreign.chain import Eagle3
from models.training.foreign.frozen import FrozenTarget
from models.training.foreign.learning import LearningOptions, Reader
from models.training.foreign.loss import Labels, draft_loss
from models.training.foreign.packing import Packed
from models.training.network import rotation_at
from models.training.settings import Shape

STEPS, FADE = 5, 0.8
"""Steps of a chain, and how much less each weighs than the one before."""
ROWS = 4096
"""Of each step, that are asked for in a batch."""


class ChainLearner(Reader):
    """An EAGLE-3 drafter in training."""

    def __init__(self, target: FrozenTarget, shape: Shape, options: LearningOptions) -> None:
        super().__init__(target, shape, options, lambda: Eagle3(shape))

    @property
    def drafter(self) -> Eagle3:
        """What is trained."""
        assert isinstance(self.trained, Eagle3)
        return self.trained

    def drafted(self, features: Tensor, batch: Packed, count: int) -> list[Tensor]:
        """Return the final-normed rows [batch, length, hidden] of each step; see `Eagle3.steps`."""
        places = torch.arange(batch.ids.shape[1], device=batch.ids.device)
        seen = (batch.owners[:, :, None] == batch.owners[:, None]) & (places <= places[:, None])
        # The first token has no state before it.
        seen = seen & (batch.positions[:, None] > 0)
        rotation = rotation_at(batch.positions.long(), self.shape)
        scaled = features * self.scale.to(features.dtype)
        return self.drafter.steps(self.target.embed(batch.ids.long()), scaled, rotation, seen, count)

    def loss(self, batch: Packed, generator: torch.Generator) -> Tensor:
        """Return the loss over random rows of each step."""
        target, options = self.target, self.options
        features, normed = self.read(batch)
        with torch.autocast(target.device.type, dtype=torch.bfloat16, enabled=target.dtype == torch.bfloat16):
            steps = self.drafted(features, batch, STEPS)
        picked, labels = [], []
        for step, hidden in enumerate(steps):
            asked = _asked(batch, step)
            draw = torch.rand(asked.shape, generator=generator, device=asked.device).masked_fill(~asked, -1.0)
            rows = draw.flatten().topk(min(ROWS, draw.numel())).indices
            following = torch.roll(batch.ids, -1, 1).flatten()[rows].long()
            greedy = torch.roll(batch.greedy, -1, 1).flatten()[rows]
            weights = asked.flatten()[rows] * FADE**step
            picked.append(hidden.flatten(0, 1)[rows].to(target.dtype))
            labels.append(Labels(normed.flatten(0, 1)[rows], following, greedy, weights))
        flat = Labels(*(torch.cat(values) for values in zip(*labels, strict=True)))
        return draft_loss(torch.cat(picked), self.table, flat, options.temperature, options.chunk, self._judge)

    @torch.no_grad()
    def hits(self, ids: tuple[int, ...], start: int, count: int, foreign: Tensor | None = None) -> Tensor:
        """Return which of `count` drafts equal the text [anchors, count], for every anchor from `start` on.

        `foreign` are features of another text, the control. A draft counts behind right ones only, so that steps are
        given the text's tokens.
        """
        batch = Packed.single(torch.tensor(ids, device=self.target.device))
        features = self.features(ids)
        if foreign is not None:
            features = foreign[torch.arange(len(ids), device=foreign.device) % len(foreign)]
        with torch.autocast(batch.ids.device.type, dtype=torch.bfloat16, enabled=features.dtype == torch.bfloat16):
            steps = self.drafted(features[None], batch, count)
        hits = torch.zeros(len(ids), count, dtype=torch.bool, device=batch.ids.device)
        for step, rows in enumerate(steps):
            drafts = (rows[0, :-1].to(self.table.dtype) @ self.table.T).argmax(-1)
            right = (drafts == batch.ids[0, 1:])[step:]
            hits[: len(right), step] = right
        return hits[start:]


def _asked(batch: Packed, step: int) -> Tensor:
    """Return the rows [batch, length] of a step whose anchor is an answer's token, and that a token follows."""
    anchors = torch.roll(batch.answers, step, 1)
    own, places = batch.owners, torch.arange(batch.ids.shape[1], device=batch.ids.device)
    alike = (torch.roll(own, step, 1) == own) & (torch.roll(own, -1, 1) == own)
    inside = (places >= step) & (places < len(places) - 1)
    return anchors & alike & inside & (own > 0) & (batch.positions > step)
