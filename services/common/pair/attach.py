"""The contract of a target and its drafter: names and shapes of the shared tensors, and the handshake's values.

Suffixes: S slots + 1 (the last is the pad slot), N blocks of one request, C context tokens, B rows, K draft tokens, V
vocabulary, D hidden size.
"""

import hashlib
import secrets
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from services.common.pair.arena import Layout
from services.common.pair.arena.flags import FLAG_PAIRS
from services.common.pair.handoff import HandoffMode

PROTOCOL_VERSION = 1

EMBED = "embed"
LM_HEAD = "lm_head"
DRAFT_KV = "draft_kv"
SEED = "slot.seed"
"""State of each slot's last committed position, with which a chain of drafts begins."""
NOISE = "noise"
TEMPERATURE = "slot.temperature"
DRAW_SEED = "slot.draw_seed"
"""On a GPU: the seed of each slot's noise, which its drafter makes itself."""
NONCE = "control.nonce"
FLAGS = "control.flags"
LENGTH = "slot.length"
ANCHOR = "slot.anchor"
EPOCH = "slot.epoch"
BLOCK_TABLE = "slot.block_table"
HISTORY = "slot.history"
HISTORY_LENGTH = "slot.history_length"
OWNER = "slot.owner"
"""On a CPU: a number for each tenant, by which drafters keep what they have said apart; 0: nobody's."""
ROWS = "round.rows"
TOKENS = "mailbox.tokens"
TAG = "mailbox.tag"
PARENTS = "mailbox.parents"
"""Where drafts are trees: the row that each follows, the anchor's being 0, and row j + 1 that of draft j."""

DRAFTER_WRITES = (TOKENS, TAG, PARENTS)
FOLLOWED = (ROWS, LENGTH, ANCHOR, EPOCH, BLOCK_TABLE, HISTORY_LENGTH)
"""Tensors whose numbers a drafter's captured steps use as indices; zeros lead to the pad block."""

_HASH_CHUNK_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class ControlShape:
    """Sizes of the small shared tensors; `nodes` says whether drafts are trees."""

    slots: int
    max_blocks: int
    context: int
    max_bucket: int
    max_draft: int
    nodes: bool = False


def control_tensors(shape: ControlShape) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """Shape and dtype of every shared tensor but the weights and the draft context."""
    slots_S = shape.slots + 1
    parents = {PARENTS: ((slots_S, shape.max_draft), torch.int32)} if shape.nodes else {}
    return {
        NONCE: ((1,), torch.int64),
        FLAGS: ((2 * FLAG_PAIRS,), torch.int64),
        LENGTH: ((slots_S,), torch.int64),
        ANCHOR: ((slots_S,), torch.int64),
        EPOCH: ((slots_S,), torch.int64),
        BLOCK_TABLE: ((slots_S, shape.max_blocks), torch.int32),
        HISTORY: ((slots_S, shape.context), torch.int32),
        HISTORY_LENGTH: ((slots_S,), torch.int64),
        ROWS: ((shape.max_bucket,), torch.int32),
        TOKENS: ((slots_S, shape.max_draft), torch.int32),
        TAG: ((slots_S, 3), torch.int64),
        **parents,
    }


@dataclass(frozen=True, slots=True)
class AttachOffer:
    """A target's request to attach. `drafter_sha256` names the checkpoint whose draft context the target writes.

    Draft context is K/V that the target computes from its own features for a drafter to attend to. The name is empty
    where the target writes none, and its drafters need none.

    Rounds ask for chains of `widths`, and for trees of as many nodes as `trees` say.

    Exactly one of `side_socket` (CPU) and `cuda_handle` with `gpu_uuid` (GPU) is set. Where no memory is shared there
    is neither, and no `layout`; `context_limit` then tells the most tokens of a text.
    """

    generation: int
    nonce: int
    layout: Layout | None
    embedding_sha256: str
    drafter_sha256: str
    slots: int
    buckets: tuple[int, ...]
    widths: tuple[int, ...]
    block_size: int
    trees: tuple[int, ...] = ()
    side_socket: str = ""
    cuda_handle: bytes = b""
    gpu_uuid: str = ""
    handoff: HandoffMode = HandoffMode.HOST
    target_pid: int = 0
    context_limit: int = 0
    protocol_version: int = PROTOCOL_VERSION

    @property
    def widest(self) -> int:
        """Most rows of a sequence in a round; 0 where no round was offered."""
        return max((*self.widths, *self.trees), default=0)


@dataclass(frozen=True, slots=True)
class DrafterInfo:
    """What a drafter says of itself; `pid` is 0 and `revision` empty when unknown."""

    proposer: str
    revision: str
    max_draft: int
    pid: int
    instance_id: str
    device: str


def new_nonce() -> int:
    """A random value for `control.nonce`; fits a signed 64-bit word with room for the reply's + 1."""
    return 1 + secrets.randbelow(2**62)


def embedding_sha256(embed_VD: Tensor, lm_head_VD: Tensor | None) -> str:
    """sha256 in hex over the bytes of the embedding, then of the head unless it is tied (None).

    While a thread hashes a chunk the next one is copied from the GPU. Both take about as long.
    """
    digest, last = hashlib.sha256(), Future[None]()
    last.set_result(None)
    with ThreadPoolExecutor(1, "hash") as thread:
        for weight_VD in (embed_VD, lm_head_VD):
            if weight_VD is not None:
                for chunk in _chunks(weight_VD):
                    last.result()
                    last = thread.submit(digest.update, chunk)
        last.result()
    return digest.hexdigest()


def _chunks(weight_VD: Tensor) -> Iterator[memoryview]:
    flat = weight_VD.detach().contiguous().view(torch.uint8).reshape(-1)
    for start in range(0, flat.numel(), _HASH_CHUNK_BYTES):
        yield flat[start : start + _HASH_CHUNK_BYTES].cpu().numpy().data
