"""What the host is told of choices without masks, beside what accept chooses under masks."""

import dataclasses
import random

import numpy as np
import torch

from services.common.kernels.accept import (
    LAST_BITS,
    Entrant,
    RoundResult,
    SlotParams,
    SlotState,
    accept,
    mask_words,
    peek,
)

SLOTS, CONTEXT, WIDTH = 6, 64, 4
PLAIN = SlotParams(max_tokens=40, context_limit=CONTEXT, masked=True)
UNFILTERED = (
    PLAIN,
    dataclasses.replace(PLAIN, temperature=0.8, seed=5),
    dataclasses.replace(PLAIN, temperature=1.7, seed=2**63 + 9),
)
FILTERED = (
    dataclasses.replace(PLAIN, temperature=0.8, top_k=3),
    dataclasses.replace(PLAIN, temperature=0.8, top_p=0.4),
    dataclasses.replace(PLAIN, temperature=0.8, min_p=0.3),
    dataclasses.replace(PLAIN, repetition_penalty=1.3),
    dataclasses.replace(PLAIN, logit_bias=((3, 2.0),)),
    dataclasses.replace(PLAIN, masked=False),
)
SILENT = -5


def slots_of(params: SlotParams, vocab: int, device: str, count: int) -> SlotState:
    """The state of slots with one request each, all alike but for what they have said."""
    state = SlotState.allocate(SLOTS, vocab, CONTEXT, width=WIDTH, device=device)
    state.admit(*(Entrant(slot, params, [1] * (slot + 1)) for slot in range(count)))
    return state


def told(state: SlotState, logits_BWV: torch.Tensor, number: int) -> tuple[np.ndarray, np.ndarray]:
    """The tokens and rounds of what each row of the first slots is told."""
    device = logits_BWV.device
    told_SW = torch.full((SLOTS + 1, WIDTH), SILENT, dtype=torch.int64, pin_memory=device.type == "cuda")
    rows_B = torch.arange(len(logits_BWV), dtype=torch.int32, device=device)
    peek(logits_BWV, rows_B, state, torch.tensor([number], device=device), told_SW)
    if device.type == "cuda":
        torch.cuda.synchronize()
    assert told_SW[len(rows_B) :].eq(SILENT).all()
    words = told_SW.numpy()[: len(rows_B), : logits_BWV.shape[1]]
    return words.astype(np.int32), words >> 32


def under_masks(state: SlotState, logits_B1V: torch.Tensor, mask_BV: np.ndarray) -> list[int]:
    """What rows choose among the tokens of their masks, by accept itself."""
    count, _, vocab = logits_B1V.shape
    bits = np.zeros((count, mask_words(vocab) * 32), np.uint8)
    bits[:, :vocab] = mask_BV
    words = torch.from_numpy(np.packbits(bits, axis=1, bitorder="little").view(np.int32).copy())
    state.mask_SWN[:count, 0] = words.to(logits_B1V.device)
    result = RoundResult.allocate(count, 1, logits_B1V.device)
    rows_B = torch.arange(count, dtype=torch.int32, device=logits_B1V.device)
    accept(logits_B1V, torch.full((count, 0), -1, device=logits_B1V.device), rows_B, state, result)
    return [row[0] for row in result.tokens_BW.tolist()]


def check_choices(params: SlotParams, vocab: int, device: str, seed: int, number: int = 7) -> tuple[int, int]:
    """A token that is told is what accept chooses wherever its mask has it; returns how many rows, and how many had."""
    source, generator = random.Random(seed), np.random.default_rng(seed)
    state, had = slots_of(params, vocab, device, SLOTS), 0
    logits = np.round(generator.normal(size=(SLOTS, 1, vocab)) * 4) / 2  # many are equal
    logits_B1V = torch.from_numpy(logits.astype(np.float32)).to(device)
    tokens, rounds = told(state, logits_B1V, number)
    assert (rounds == number & LAST_BITS).all()
    mask_BV = generator.random((SLOTS, vocab)) < 0.5
    for row in range(SLOTS):
        mask_BV[row, tokens[row, 0]] |= source.random() < 0.5
    for row, chosen in enumerate(under_masks(state, logits_B1V, mask_BV)):
        assert mask_BV[row, chosen]
        if mask_BV[row, tokens[row, 0]]:
            assert chosen == tokens[row, 0], f"seed {seed}"
            had += 1
    return SLOTS, had


def check_rows(params: SlotParams, vocab: int, device: str, seed: int) -> None:
    """Row j of a span is told what the only row is told j tokens later; what is not finite is told as no token."""
    logits = torch.from_numpy(np.random.default_rng(seed).normal(size=(SLOTS, WIDTH, vocab)).astype(np.float32))
    logits[2, 1, 5], logits[3, 0, vocab - 1] = float("nan"), float("inf")
    logits_BWV = logits.to(device)
    tokens, _ = told(slots_of(params, vocab, device, SLOTS), logits_BWV, 1)
    for offset in range(WIDTH):
        state = slots_of(params, vocab, device, SLOTS)
        state.length_S.add_(offset)
        alone, _ = told(state, logits_BWV[:, offset : offset + 1].contiguous(), 1)
        assert tokens[:, offset].tolist() == alone[:, 0].tolist(), f"seed {seed}"
    assert [tuple(map(int, place)) for place in np.argwhere(tokens < 0)] == [(2, 1), (3, 0)]
