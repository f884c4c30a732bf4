"""Every kernel of the path: a row has the same bits at any number of rows, beside any others, in any cut."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch

from tests.bench.gpu.exact.attention import Sizes, attention_tallies, full_sizes
from tests.bench.gpu.exact.choices import choice_tallies
from tests.bench.gpu.exact.report import Row, exact_row
from tests.bench.gpu.exact.row_kernels import COUNTS, FEW_COUNTS, MOST, Numbers, narrow_subjects, wide_subjects
from tests.bench.gpu.exact.rows_alone import Tally, compare
from tests.bench.gpu.shapes import SHAPES

SEED, LONGEST, SEQUENCES = 22, 32_000, 128
TINY_SIZES = Sizes((0, 1, 19, 40, 63, 64), (1, 2, 3), (1, 2, 4), ((0, 64), (16, 16), (5, 32)))
TINY_ROWS = 40


def kernel_rows(device: str, dtype: str, shape: str, only: str) -> Iterator[Row]:
    """One row for each output of each kernel of a shape; `only` names what a kernel's name must contain."""
    start = time.perf_counter()
    for tally in _tallies(Numbers(getattr(torch, dtype), device, SEED), shape, only):
        took, start = time.perf_counter() - start, time.perf_counter()
        more = {"cases": tally.cases, "seconds": round(took, 1)} | ({"first": tally.first} if tally.first else {})
        yield exact_row(tally.what, tally.compared, tally.differ, **more)


@torch.inference_mode()
def _tallies(numbers: Numbers, name: str, only: str) -> Iterator[Tally]:
    tiny, shape = name == "tiny", SHAPES[name]
    rows = TINY_ROWS if tiny else MOST
    for subject in narrow_subjects(shape, numbers, rows):
        if only in subject.name:
            yield from compare(subject, COUNTS, SEED)
    if not only or only in "head argmax logprobs":
        for subject in wide_subjects(shape, numbers, rows):
            yield from compare(subject, FEW_COUNTS, SEED)
    if only in "attend_span attend_block":
        yield from attention_tallies(shape, numbers, TINY_SIZES if tiny else full_sizes(SEQUENCES, LONGEST))
    if only in "accept":
        yield from choice_tallies(shape.vocab, numbers, 8 if tiny else SEQUENCES, 4 if tiny else 16)
