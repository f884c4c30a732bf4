"""The walk along a tree on a GPU, in vectors over the rows of one sequence.

A row is on the path if each row from the anchor to it is its parent's first right child. Ancestors are bits of a word,
so that is one comparison of a row, and no loop goes from row to row.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="attr-defined"

import triton
import triton.language as tl


@triton.jit
def walked_path(token, offered, draft, line, parents_ptr, ancestors_ptr, WIDTH: tl.constexpr, WIDTH_PAD: tl.constexpr):
    """Return which rows are on the accepted path; `token` is what each row chose, `offered` which drafts count."""
    row = tl.arange(0, WIDTH_PAD)
    drafts = (row > 0) & (row < WIDTH)
    parent = tl.load(parents_ptr + line * (WIDTH - 1) + row - 1, mask=drafts, other=-1)
    bits = tl.load(ancestors_ptr + line * WIDTH + row, mask=row < WIDTH, other=-1)
    right = drafts & offered & (draft == _of_parents(token, parent, WIDTH_PAD))
    # Only the first of siblings that drafted the same.
    right_before = _across(right.to(tl.int32), WIDTH_PAD)[None, :] & (row[None, :] < row[:, None])
    twins = (_across(parent, WIDTH_PAD)[None, :] == parent[:, None]) & (right_before != 0)
    good = right & (tl.sum(twins.to(tl.int32), 1) == 0)
    wrong = tl.sum(tl.where(good | (row == 0), 0, tl.full((WIDTH_PAD,), 1, tl.int64) << row.to(tl.int64)), 0)
    return (row < WIDTH) & ((bits & wrong) == 0)


@triton.jit
def holds_order(walked, line, parents_ptr, WIDTH: tl.constexpr, WIDTH_PAD: tl.constexpr):
    """Return which rows follow the row that they followed when masks were made; `walked` is the draft of such a row.

    Rows without one count: they have no draft to be compared with.
    """
    row = tl.arange(0, WIDTH_PAD)
    drafts = (row > 0) & (row < WIDTH)
    parent = tl.load(parents_ptr + line * (WIDTH - 1) + row - 1, mask=drafts, other=0)
    held = _across((walked >= 0).to(tl.int32), WIDTH_PAD)[None, :] & (row[None, :] < row[:, None])
    before = tl.max(tl.where(held != 0, row[None, :], 0), 1)
    return (walked < 0) | (parent == before)


@triton.jit
def in_order(on_path, value, line, depths_ptr, WIDTH: tl.constexpr, WIDTH_PAD: tl.constexpr):
    """Return the values of rows in the order of the path, and behind its end those of all rows in order."""
    row = tl.arange(0, WIDTH_PAD)
    depth = tl.load(depths_ptr + line * WIDTH + row, mask=row < WIDTH, other=0)
    count = tl.sum(on_path.to(tl.int32), 0)
    here = _across(tl.where(on_path, depth, -1), WIDTH_PAD)[None, :] == row[:, None]
    found = tl.sum(tl.where(here, _across(value, WIDTH_PAD)[None, :], 0), 1)
    return tl.where(row < count, found, value)


@triton.jit
def _of_parents(value, parent, WIDTH_PAD: tl.constexpr):
    """Return the value of each row's parent."""
    follows = parent[:, None] == tl.arange(0, WIDTH_PAD)[None, :]
    return tl.sum(tl.where(follows, _across(value, WIDTH_PAD)[None, :], 0), 1)


@triton.jit
def _across(value, WIDTH_PAD: tl.constexpr):
    """Return the values of rows as those of columns."""
    row = tl.arange(0, WIDTH_PAD)
    return tl.sum(tl.where(row[:, None] == row[None, :], value[:, None], 0), 0)
