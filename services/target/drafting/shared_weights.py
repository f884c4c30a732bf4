"""The embedding and the head that a drafter works with, in the arena."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import torch

from services.common.model import Target
from services.common.pair import attach
from services.common.pair.arena import Arena


class DamagedWeightsError(RuntimeError):
    """The target's own weights are no longer those it loaded, so its output can be wrong."""


def sha256_of(weights: SharedWeights | None) -> str:
    """The hash of what a drafter reads of the model; waits until it is known. Empty where it reads nothing."""
    return weights.sha256 if weights is not None else ""


class SharedWeights:
    """A drafter's embedding and head, and their `sha256` as loaded.

    In a sealed arena the target reads them there, so there is one copy. A drafter can write an arena on a GPU: there
    the arena holds the drafter's copy, and the target keeps its own, which a thread hashes while the start goes on.
    """

    def __init__(self, model: Target, arena: Arena) -> None:
        """Fills the arena; a sealed arena replaces the model's own embedding and head."""
        self._model = model
        self._embed_VD = arena.tensor(attach.EMBED)
        self._head_VD = None if model.spec.tied else arena.tensor(attach.LM_HEAD)
        self._hashed = self._begin_to_hash()
        self._send()
        if arena.sealed:
            self._hashed.result()  # of the model's own, which is given up now
            model.use_shared(self._embed_VD, self._head_VD)

    @property
    def sha256(self) -> str:
        """In hex; waits until it is known."""
        return self._hashed.result()

    def send_again(self) -> None:
        """Writes the drafter's copy again, which was found damaged.

        Raises:
            DamagedWeightsError: The target's own bytes are damaged.
        """
        if self._own_sha256() != self.sha256:
            raise DamagedWeightsError("the target's own embedding or head is not what it has loaded")
        self._send()

    def _begin_to_hash(self) -> Future[str]:
        thread = ThreadPoolExecutor(1, "sha256")
        hashed = thread.submit(self._own_sha256)
        thread.shutdown(wait=False)
        return hashed

    def _own_sha256(self) -> str:
        return attach.embedding_sha256(self._model.embed_VD, None if self._head_VD is None else self._model.lm_head_VD)

    def _send(self) -> None:
        self._embed_VD.copy_(self._model.embed_VD)
        if self._head_VD is not None:
            self._head_VD.copy_(self._model.lm_head_VD)
        if self._embed_VD.is_cuda:
            torch.cuda.current_stream(self._embed_VD.device).synchronize()
