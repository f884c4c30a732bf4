"""The target's side of an attachment without a target: an arena over memfd, and the side socket that shares it."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from services.common.pair import attach
from services.common.pair.arena import MemfdArena
from services.common.pair.attach import AttachOffer, ControlShape
from services.common.pair.side_socket import DescriptorListener

SLOTS = 4
VOCAB = 50
SHAPE = ControlShape(slots=SLOTS, max_blocks=8, context=64, max_bucket=4, max_draft=7)


@dataclass
class FakeArena:
    """A live arena, the listener that shares it and the offer that describes it."""

    arena: MemfdArena
    listener: DescriptorListener
    offer: AttachOffer

    def put(self, slot: int, tokens: Sequence[int], epoch: int, blocks: Sequence[int] = ()) -> None:
        """Makes a slot hold a request whose last token is the anchor."""
        self.arena[attach.HISTORY][slot, : len(tokens)] = torch.tensor(tokens, dtype=torch.int32)
        self.arena[attach.HISTORY_LENGTH][slot] = len(tokens)
        self.arena[attach.LENGTH][slot] = len(tokens) - 1
        self.arena[attach.ANCHOR][slot] = tokens[-1]
        self.arena[attach.EPOCH][slot] = epoch
        self.arena[attach.BLOCK_TABLE][slot, : len(blocks)] = torch.tensor(blocks, dtype=torch.int32)

    def rows(self, slots: Sequence[int], bucket: int) -> None:
        """Publishes the rows of a round; the rest of the bucket is padding."""
        padded = [*slots, *[SLOTS] * (bucket - len(slots))]
        self.arena[attach.ROWS][:bucket] = torch.tensor(padded, dtype=torch.int32)

    def drafts(self, slot: int, count: int) -> list[int]:
        """What the mailbox holds for a slot."""
        return [int(token) for token in self.arena[attach.TOKENS][slot, :count]]

    def tag(self, slot: int) -> tuple[int, ...]:
        """(round, epoch, generation) of a slot's drafts."""
        return tuple(int(word) for word in self.arena[attach.TAG][slot])

    def renew(self, generation: int) -> AttachOffer:
        """Offers the same arena again under another generation and nonce."""
        nonce = attach.new_nonce()
        self.arena[attach.NONCE][0] = nonce
        self.listener.offer(generation, nonce, self.arena.descriptors)
        self.offer = replace(self.offer, generation=generation, nonce=nonce)
        return self.offer


@contextmanager
def fake_arena(
    folder: Path, embed_VD: Tensor | None = None, draft_kv: Tensor | None = None, drafter_sha256: str = ""
) -> Iterator[FakeArena]:
    """An arena with generation 1 on offer; weights and context are copied into it when given."""
    spec = dict(attach.control_tensors(SHAPE))
    given = {attach.EMBED: embed_VD, attach.DRAFT_KV: draft_kv}
    filled = {name: tensor for name, tensor in given.items() if tensor is not None}
    spec.update({name: (tuple(tensor.shape), tensor.dtype) for name, tensor in filled.items()})
    arena = MemfdArena.create(spec, attach.DRAFTER_WRITES)
    for name, tensor in filled.items():
        arena[name].copy_(tensor)
    listener = DescriptorListener(folder)
    offer = AttachOffer(
        generation=1,
        nonce=0,
        layout=arena.layout(),
        embedding_sha256="" if embed_VD is None else attach.embedding_sha256(embed_VD, None),
        drafter_sha256=drafter_sha256,
        slots=SLOTS,
        buckets=(1, 2, 4),
        widths=(4, 8),
        block_size=16,
        side_socket=listener.path,
        target_pid=os.getpid(),
    )
    fake = FakeArena(arena, listener, offer)
    fake.renew(1)
    try:
        yield fake
    finally:
        listener.close()
        arena.close()
