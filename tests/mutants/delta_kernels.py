"""Seeded bugs of the kernels of recurrent layers, which run by Triton's interpreter."""

from tests.mutants.mutation import Mutant

DELTA = "services.common.kernels.gated_delta."
ALIKE = "tests/kernels/gpu/test_delta.py::test_chunks_and_rounds_read_the_same"

DELTA_KERNELS = (
    Mutant(
        "kernel-folds-drafts-before-they-are-accepted",
        f"{DELTA}project",
        "reach, sure = length + width, length\n",
        "reach, sure = length + width, length + width\n",
        ALIKE,
    ),
    Mutant(
        "kernel-convolves-from-a-row-too-early",
        f"{DELTA}project",
        "at = position + (tap + 1 - TAPS)",
        "at = position + (tap - TAPS)",
        ALIKE,
    ),
    Mutant(
        "kernel-keeps-a-row-too-few-in-the-ring",
        f"{DELTA}ring",
        "tl.maximum(reach - RING, length)",
        "tl.maximum(reach - RING, length + 1)",
        ALIKE,
    ),
    Mutant(
        "kernel-takes-the-gates-of-the-row-before",
        f"{DELTA}project",
        "source_rows(into_ptr, ring_ptr, slot, sequence, length, position, width,",
        "source_rows(into_ptr, ring_ptr, slot, sequence, length, position - 1, width,",
        ALIKE,
    ),
    Mutant(
        "kernel-moves-the-state-by-pad-rows",
        f"{DELTA}project",
        "reach = length + tl.load(valid_ptr + sequence).to(tl.int32)",
        "reach = length + width",
        ALIKE,
    ),
    Mutant(
        "kernel-reads-a-state-that-nobody-wrote",
        f"{DELTA}block",
        "there_too = tl.full(at.shape, 0, tl.int32) + there > 0",
        "there_too = tl.full(at.shape, 1, tl.int32) > 0",
        ALIKE,
    ),
    Mutant(
        "kernel-multiplies-a-state-by-high-halves-alone",
        f"{DELTA}halves",
        "total = tl.dot(high, tile_low, total)",
        "total = tl.dot(high * 0.0, tile_low, total)",
        ALIKE,
    ),
    Mutant(
        "kernel-moves-a-state-by-a-block-that-is-not-whole",
        f"{DELTA}scan",
        "    if through:\n",
        "    if last >= 0:\n",
        ALIKE,
    ),
)
