"""The embedding and the head that a drafter works with, in the arena."""

from __future__ import annotations

import torch

from services.common.model import Target
from services.common.pair import attach
from services.common.pair.arena import Arena


class DamagedWeightsError(RuntimeError):
    """The target's own weights are no longer those it loaded, so its output can be wrong."""


class SharedWeights:
    """A drafter's embedding and head, and their `sha256` as loaded.

    In a sealed arena the target reads them there, so there is one copy. A drafter can write an arena on a GPU: there
    the arena holds the drafter's copy, and the target keeps its own.
    """

    def __init__(self, model: Target, arena: Arena) -> None:
        """Fills the arena; a sealed arena replaces the model's own embedding and head."""
        self._model = model
        self._embed_VD = arena.tensor(attach.EMBED)
        self._head_VD = None if model.spec.tied else arena.tensor(attach.LM_HEAD)
        self.sha256 = self._own_sha256()
        self._send()
        if arena.sealed:
            model.use_shared(self._embed_VD, self._head_VD)

    def send_again(self) -> None:
        """Writes the drafter's copy again, which was found damaged.

        Raises:
            DamagedWeightsError: The target's own bytes are damaged.
        """
        if self._own_sha256() != self.sha256:
            raise DamagedWeightsError("the target's own embedding or head is not what it has loaded")
        self._send()

    def _own_sha256(self) -> str:
        return attach.embedding_sha256(self._model.embed_VD, None if self._head_VD is None else self._model.lm_head_VD)

    def _send(self) -> None:
        self._embed_VD.copy_(self._model.embed_VD)
        if self._head_VD is not None:
            self._head_VD.copy_(self._model.lm_head_VD)
        if self._embed_VD.is_cuda:
            torch.cuda.current_stream(self._embed_VD.device).synchronize()
