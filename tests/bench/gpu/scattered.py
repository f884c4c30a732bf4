"""A pair whose rows choose experts of their own, though its weights are made up.

Rows of one text become alike in a deep stack of random weights, and a random drafter names one token for all of a
block. So eight rows of a lone request choose some nine experts, where uniform routes have 52 and texts nearly as many.
Here embeddings outweigh what layers add, so that routes follow tokens, and drafts are tokens drawn beforehand: any, or
of so few for each row of the batch that some return, as in texts. Neither changes what kernels are launched but for
four small ones of a draft.

`python -m tests.bench.gpu.scattered` is `python -m services.drafter` with such drafts; `pinned` has the embeddings.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from unittest import mock

import torch
from torch import Tensor

from services.common.model.files.random_weights import RandomCheckpoint
from services.drafter.__main__ import main as drafter_main
from services.drafter.arena_view import ArenaView
from services.drafter.proposers.checkpoint import CheckpointProposer

VARIABLE = "BENCH_ROUTES"
ROUTES = {"own": 0, "even": 1 << 30, "skewed": 12}
"""Of how many tokens a row's drafts are, by the name of routes; 0: what the drafter names. Eight of twelve are six."""
_OUTWEIGHS, _LONGEST, _DRAFTS, _FIRST, _SEED = 400.0, 4096, 64, 2, 7

Propose = Callable[[CheckpointProposer, ArenaView, Tensor, int], Tensor]


def outweighing_embeddings() -> AbstractContextManager[object]:
    """While it is open, embeddings that are drawn outweigh what layers add, where routes are not the model's own."""
    drawn = RandomCheckpoint.read

    def read(self: RandomCheckpoint, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        numbers = drawn(self, name, shape, dtype)
        return numbers.mul_(_OUTWEIGHS) if name.endswith("embed_tokens.weight") and pool_of_environment() else numbers

    return mock.patch.object(RandomCheckpoint, "read", read)


def pool_of_environment() -> int:
    """Of how many tokens the drafts of a row are; 0: no drafts are drawn."""
    return ROUTES[os.environ.get(VARIABLE, "own")]


def tokens_of(slots: int, vocab: int, pool: int) -> Tensor:
    """Return tokens [S, places] behind those with a meaning of their own: of a row at most `pool` different ones."""
    random = torch.Generator().manual_seed(_SEED)
    own_SN = torch.randint(_FIRST, vocab, (slots, min(pool, _LONGEST)), generator=random)
    return own_SN.gather(1, torch.randint(0, own_SN.shape[1], (slots, _LONGEST), generator=random))


def scattered(propose: Propose, pool: int) -> Propose:
    """Drafts as many tokens as `propose`, and as long, but drawn ones."""
    tables: dict[int, tuple[Tensor, Tensor, Tensor]] = {}

    def drawn(self: CheckpointProposer, shared: ArenaView, rows_B: Tensor, width: int) -> Tensor:
        drafts_BK = propose(self, shared, rows_B, width)
        if id(shared) not in tables:
            assert shared.embed_VD is not None, "a block has embeddings"
            slots, device = len(shared.length_S), drafts_BK.device
            table_SN = tokens_of(slots, shared.embed_VD.shape[0], pool).to(device, drafts_BK.dtype)
            first_S = torch.arange(slots, device=device) * _LONGEST
            tables[id(shared)] = table_SN.flatten(), first_S, torch.arange(_DRAFTS, device=device)
        table_N, first_S, ahead_K = tables[id(shared)]
        at_B = (shared.length_S % (_LONGEST - _DRAFTS) + first_S).index_select(0, rows_B)
        return table_N[at_B[:, None] + ahead_K[: drafts_BK.shape[1]]]

    return drawn


def main() -> int:
    """Runs until SIGTERM; returns the exit code."""
    pool = pool_of_environment()
    if not pool:
        return drafter_main()
    with mock.patch.object(CheckpointProposer, "propose", scattered(CheckpointProposer.propose, pool)):
        return drafter_main()


if __name__ == "__main__":
    sys.exit(main())
