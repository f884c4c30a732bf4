"""Span attention: every shape and length against plain softmax over each row's own positions."""

import pytest
import torch
from torch import Tensor

from services.common.kernels.span_attention import attend_span, kernel, merge, plan_context, plan_span
from tests.kernels.gpu.devices import DEVICE, DTYPES, close, randn

BLOCK_SIZE, BLOCKS, COLUMNS = 4, 40, 12
LENGTHS = [0, 19, 33, 5]


def tables(lengths: list[int], width: int) -> Tensor:
    """Give every sequence just the blocks that it needs, none of them in order; the last sequence is a pad row."""
    table, free = torch.zeros(len(lengths), COLUMNS, dtype=torch.int32), list(range(BLOCKS - 1, 0, -1))
    for column in range(COLUMNS):
        for row, length in enumerate(lengths[:-1]):
            if column * BLOCK_SIZE < length + width:
                table[row, column] = free.pop(0)
    return table.to(DEVICE)


def dense(kv: Tensor, table: Tensor, row: int, count: int) -> tuple[Tensor, Tensor]:
    places = torch.arange(count)
    blocks = table[row].cpu().long()[places // BLOCK_SIZE]
    own = kv.cpu()[:, blocks, places % BLOCK_SIZE].double()
    return own[0], own[1]


def softmax_attention(q_HD: Tensor, keys_THD: Tensor, values_THD: Tensor) -> Tensor:
    group = q_HD.shape[0] // keys_THD.shape[1]
    keys, values = keys_THD.repeat_interleave(group, 1), values_THD.repeat_interleave(group, 1)
    scores_HT = torch.einsum("hd,thd->ht", q_HD.cpu().double(), keys) / q_HD.shape[1] ** 0.5
    return torch.einsum("ht,thd->hd", scores_HT.softmax(-1), values).flatten()


def poisoned_kv(kv_heads: int, size: int, table: Tensor, counts: list[int], dtype: torch.dtype) -> Tensor:
    """NaN wherever no sequence has written."""
    kv = torch.full((2, BLOCKS, BLOCK_SIZE, kv_heads, size), float("nan"))
    for row, count in enumerate(counts[:-1]):
        places = torch.arange(count)
        blocks = table[row].cpu().long()[places // BLOCK_SIZE]
        noise = torch.randn((2, count, kv_heads, size), generator=torch.Generator().manual_seed(row))
        kv[:, blocks, places % BLOCK_SIZE] = noise
    return kv.to(dtype).to(DEVICE)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("width", "heads", "kv_heads", "size"), [(1, 2, 2, 16), (4, 4, 1, 24), (5, 2, 1, 16), (9, 4, 1, 16)]
)
def test_causal_span(width: int, heads: int, kv_heads: int, size: int, dtype: torch.dtype) -> None:
    table, counts = tables(LENGTHS, width), [length + width for length in LENGTHS]
    kv = poisoned_kv(kv_heads, size, table, counts, dtype)
    q = randn(len(LENGTHS), width, heads, size, dtype=dtype)
    out = kernel.attend_span(q, kv, plan_span(table, torch.tensor(LENGTHS, device=DEVICE), width, BLOCK_SIZE))
    for row, length in enumerate(LENGTHS[:-1]):
        for offset in range(width):
            keys, values = dense(kv, table, row, length + offset + 1)
            close(out[row, offset], softmax_attention(q[row, offset], keys, values).to(dtype))


@pytest.mark.parametrize("by_kernel", [True, False])
def test_results_of_two_spans_lie_behind_one_another(by_kernel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.common.kernels.span_attention.on_kernel", lambda tensor: by_kernel)
    spans, alone, device = [], [], DEVICE if by_kernel else "cpu"
    table = tables(LENGTHS, 5)
    kv = poisoned_kv(1, 16, table, [length + 5 for length in LENGTHS], torch.float32).to(device)
    lengths_B = torch.tensor(LENGTHS, device=device)
    for width in (5, 1):
        span = plan_span(table.to(device), lengths_B, width, BLOCK_SIZE)
        q_BWHD = randn(len(LENGTHS), width, 2, 16, seed=width).to(device)
        spans.append((q_BWHD, span))
        alone.append(attend_span(q_BWHD, kv, span).clone())
    together_TF = torch.zeros(sum(out.shape[0] * out.shape[1] for out in alone), 32, device=device)
    rooms = together_TF.split([out.shape[0] * out.shape[1] for out in alone])
    for (q_BWHD, span), room_TF, out in zip(spans, rooms, alone, strict=True):
        attend_span(q_BWHD, kv, span, room_TF.view(out.shape))
    # The last sequence is a pad row, which attends to what nobody has written.
    for room_TF, out in zip(rooms, alone, strict=True):
        assert torch.equal(room_TF.view(out.shape)[:-1], out[:-1])


@pytest.mark.parametrize("width", [2, 9])
def test_a_length_past_the_table_reads_nothing_behind_it(width: int) -> None:
    """What follows a row of the table is another's: here blocks that hold no numbers."""
    blocks, room = 12, 12 * BLOCK_SIZE
    table = torch.arange(1, 2 * blocks + 1, dtype=torch.int32, device=DEVICE)[None]
    kv = torch.full((2, 2 * blocks + 1, BLOCK_SIZE, 1, 16), float("nan"), device=DEVICE)
    kv[:, 1 : blocks + 1] = randn(2, blocks, BLOCK_SIZE, 1, 16)
    q, lengths = randn(1, width, 4, 16), torch.tensor([room + 21], device=DEVICE)
    own = randn(1, width, 1, 16, seed=2)
    short = table[:, :blocks]
    assert kernel.attend_span(q, kv, plan_span(short, lengths, width, BLOCK_SIZE)).isfinite().all()
    assert kernel.attend_block(q, own, own, kv, plan_context(short, lengths, width, BLOCK_SIZE)).isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("width", "heads", "kv_heads", "size"), [(5, 2, 2, 16), (4, 3, 1, 24)])
def test_context_and_block(width: int, heads: int, kv_heads: int, size: int, dtype: torch.dtype) -> None:
    table = tables(LENGTHS, width)
    kv = poisoned_kv(kv_heads, size, table, LENGTHS, dtype)
    shape = (len(LENGTHS), width, kv_heads, size)
    q, keys, values = (
        randn(*shape[:2], heads, size, dtype=dtype),
        randn(*shape, seed=5, dtype=dtype),
        randn(*shape, seed=6, dtype=dtype),
    )
    span = plan_context(table, torch.tensor(LENGTHS, device=DEVICE), width, BLOCK_SIZE)
    out = kernel.attend_block(q, keys, values, kv, span)
    for row, length in enumerate(LENGTHS[:-1]):
        past_keys, past_values = dense(kv, table, row, length)
        all_keys = torch.cat((past_keys, keys[row].cpu().double()))
        all_values = torch.cat((past_values, values[row].cpu().double()))
        for offset in range(width):
            close(out[row, offset], softmax_attention(q[row, offset], all_keys, all_values).to(dtype))


def test_merging_many_rows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    table = tables(LENGTHS, 4)
    kv = poisoned_kv(1, 24, table, [length + 4 for length in LENGTHS], torch.float32)
    q = randn(len(LENGTHS), 4, 3, 24)
    span = plan_span(table, torch.tensor(LENGTHS, device=DEVICE), 4, BLOCK_SIZE)
    monkeypatch.setattr(merge, "_MERGE_ROWS", 1)
    expected = kernel.attend_span(q, kv, span)
    monkeypatch.setattr(merge, "_MANY_MERGES", 0)
    close(kernel.attend_span(q, kv, span)[:-1], expected[:-1])
