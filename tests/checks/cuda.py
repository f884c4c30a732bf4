"""Compiles the kernels in CUDA C++ for each kind of GPU whose instructions they use; needs no GPU.

`python -m tests.checks.cuda` takes a program of each structure that dispatch can choose; with `--full` every program
that it chooses for the shapes of public models.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from types import SimpleNamespace
from typing import NamedTuple, TypeVar, cast

import torch

from services.common.kernels import nvrtc
from services.common.kernels.cuda import BUILD, Source
from services.common.kernels.experts.alone import source as row_of_experts
from services.common.kernels.experts.tiles import source as tiles_of_experts
from services.common.kernels.gated_delta.chunks import source as chunks
from services.common.kernels.gated_delta.rounds import source as rounds
from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.packed.launch import source_of as packed_source
from services.common.kernels.linear.packed.tiling import ROWS as PACKED_ROWS
from services.common.kernels.linear.packed.tiling import PackedTiling, packed_cut
from services.common.kernels.linear.persistent.eight import eight_cut
from services.common.kernels.linear.persistent.grouped import grouped_cut
from services.common.kernels.linear.persistent.launch import source_of as persistent_source
from services.common.kernels.linear.persistent.tiling import PersistentTiling
from services.common.kernels.linear.persistent.wide import wide_cut
from services.common.kernels.linear.skinny.source import source_of as skinny_source
from services.common.kernels.linear.skinny.tiling import SkinnyTiling, skinny_cut
from services.common.kernels.span_attention import hopper
from services.common.kernels.span_attention.alone import source as alone
from services.common.kernels.span_attention.hopper import source as tiles
from services.common.kernels.span_attention.hopper.cut import cut_blocks, cut_codes, cut_tiles, cut_trees
from services.common.kernels.span_attention.span import Span

Cut = TypeVar("Cut")
_PARSED = "compute_90a"
LATER_GPUS = "sm_100a", "sm_120a"
"""Kinds for which programs without Hopper's matrix instructions compile, too; older ones lack clusters and barriers."""
ROWS = (1, 8, 9, 16, 17, 32, 33, 48, 64, 80, 96, 128, 144, 192, 256, 320, 384, 512, 768, 1024, 2048, 4096)
MODELS = {
    "Qwen3-0.6B": (1024, 3072, 4096, 2048),
    "Qwen3-1.7B": (2048, 6144, 4096, 2048),
    "Qwen3-4B": (2560, 9728, 6144, 4096),
    "Qwen3-8B": (4096, 12288, 6144, 4096),
    "Llama-3.1-8B": (4096, 14336, 6144, 4096),
    "Qwen3-14B": (5120, 17408, 7168, 5120),
    "Qwen3-32B": (5120, 25600, 10240, 8192),
    "Qwen3.5-4B": (2560, 9216, 12352, 4096),
    "Qwen3.5-27B": (5120, 17408, 16480, 6144),
}
"""The stream's width, the inner one, lines into a mixer, and its width."""
HEADS = ((64, 3, 3), (128, 2, 8), (128, 4, 8), (128, 5, 8), (128, 8, 8), (256, 4, 4), (256, 8, 2))
"""Numbers of a head, query heads a K/V head, and K/V heads."""
ROWS_ALONE = ((0, False), (512, False), (512, True))
"""Positions that a row which is alone sees, 0: all, and whether its heads have gates."""


class Program(NamedTuple):
    """What a compiler is given: a kernel's name, what it is built for, and for which kinds of GPU."""

    kernel: str
    built_for: str
    source: Source
    gpus: tuple[str, ...] = (nvrtc.HOPPER,)


def products() -> Iterator[tuple[int, int, Kind]]:
    """Lines and depth of the weights of public models, and what follows their products."""
    for width, inner, into, mixed in MODELS.values():
        yield into, width, Kind.PLAIN
        yield mixed, width, Kind.GATES
        yield 151_936, width, Kind.PLAIN
        yield 2 * inner, width, Kind.GATED
        for depth, kind in product((mixed, inner), (Kind.ADDED, Kind.PLAIN)):
            yield width, depth, kind


def of_few_rows(full: bool) -> Iterator[Program]:
    """Products of up to 32 rows."""
    cuts = {
        cut: None
        for (lines, depth, kind), rows in product(products(), ROWS)
        if (cut := skinny_cut(lines, depth, rows, kind))
    }
    for cut in cuts if full else _one_each(cuts, _structure):
        yield Program("product", str(cut), skinny_source(cut))


def in_tiles(full: bool) -> Iterator[Program]:
    """Products of more rows, and those by weights of eight bits."""
    cuts: dict[PersistentTiling, None] = {}
    for (lines, depth, kind), rows in product(products(), ROWS):
        found = [wide_cut(lines, depth, rows, kind)]
        if kind != Kind.GATES:
            found += [eight_cut(lines, depth, rows, kind), grouped_cut(lines, depth, rows, kind)]
        cuts |= {cut: None for cut in found if cut}
    for cut in cuts if full else _one_each(cuts, _tile_structure):
        yield Program("product", str(cut), persistent_source(cut))


def of_packed_weights(full: bool) -> Iterator[Program]:
    """Products of up to 128 rows by weights that are widened in registers."""
    cuts: dict[PackedTiling, None] = {}
    scales = (False, True, 8), (True, False, 8), (True, False, 4)
    for (lines, depth, kind), rows, own in product(products(), PACKED_ROWS, scales):
        if cut := packed_cut(lines, depth, rows, kind, depth // 128, *own):
            cuts |= {cut: None, cut._replace(fused=cut.bits == 4, short=cut.short or cut.bits == 4): None}
    for cut in cuts if full else _one_each(cuts, lambda own: (own.kind, own.rows, own.bits, own.cluster, own.fused)):
        yield Program("product", str(cut), packed_source(cut))


def of_attention(full: bool) -> Iterator[Program]:
    """Attention of spans, and of drafters' blocks."""
    shapes: dict[tiles.Shape, None] = {}
    widths, batches = (1, 2, 4, 8, 12, 16, 128), (1, 2, 4, 8, 16, 32, 64, 128)
    for head, width, batch, short in product(HEADS, widths, batches, (True, False)):
        shapes |= dict.fromkeys(_shapes(*head, width, batch, short))
    for shape in shapes if full else _one_each(shapes, lambda each: each._replace(group=0, kv_heads=0, block=0)):
        yield Program("attend", str(shape), tiles.source_of(shape))


def of_rows(full: bool) -> Iterator[Program]:
    """Attention of a row that is alone."""
    gpus = (nvrtc.HOPPER, *LATER_GPUS)
    for (size, group, _), block in product(HEADS, (16, 64) if full else (16,)):
        if size == 128:
            for window, gated in ROWS_ALONE:
                shape = alone.Shape(size, group, block, window, gated)
                yield Program("attend_alone", str(shape), alone.source_of(shape), gpus)


def of_experts(full: bool) -> Iterator[Program]:
    """A row that is alone through its experts, and other rows, by numbers and by codes."""
    shapes = (2048, 768, 128, 8), (2048, 512, 512, 10)
    weights = (False, False), (True, True), (True, False)
    for (hidden, inner, count, top_k), own in product(shapes[: 2 if full else 1], weights):
        shape = row_of_experts.Shape(hidden, inner, count, top_k, True, *own)
        more = shape._replace(rated=True, followed=True)
        for each in (shape, more)[: 1 if shape.coded else 2]:
            yield Program("row", str(each), row_of_experts.source_of(each))
        for places, gated in product((16, 32, 64, 96, tiles_of_experts.PLACES), (True, False)):
            sizes = (hidden, inner) if gated else (inner, hidden)
            tile = tiles_of_experts.TileShape(*sizes, top_k, gated, *own, places)
            if tile.fits():
                yield Program("product", str(tile), tiles_of_experts.source_of(tile))


def of_recurrent_layers(_: bool) -> Iterator[Program]:
    """Rounds and chunks of the gated delta rule."""
    for programs in rounds.PROGRAMS:
        yield Program("delta_round", str(programs), rounds.source_of(programs))
    yield Program("delta_rounds", "", rounds.many_source())
    yield Program("delta_prepare", "", chunks.prepare_source(), (nvrtc.HOPPER, *LATER_GPUS))
    yield Program("delta_chain", "", chunks.chain_source())


def programs(full: bool) -> list[Program]:
    """All programs, the longest first as far as that is known."""
    kinds = of_recurrent_layers, in_tiles, of_attention, of_few_rows, of_packed_weights, of_rows, of_experts
    return [program for kind in kinds for program in kind(full)]


def headers(given: Iterable[Program]) -> Iterator[Program]:
    """Each header that programs include, alone: it must include all that it uses. No code is made of it."""
    builds = {name: program.source.build for program in given for name in program.source.headers()}
    for name in sorted(builds.keys() - {BUILD}):
        if name.endswith(".cuh"):
            yield Program(name, "alone", Source(name, builds[name]), (_PARSED,))


def refusals(given: Iterable[Program], processes: int) -> Iterator[str]:
    """What the compiler says of each program that it refuses."""
    wanted = [(program, gpu) for program in given for gpu in program.gpus]
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        yield from filter(None, pool.map(refusal, wanted, chunksize=1))


def refusal(wanted: tuple[Program, str]) -> str:
    """Return what the compiler says of a program for a kind of GPU if it refuses it."""
    program, gpu = wanted
    try:
        nvrtc.compiled(program.source.text, program.kernel, gpu, program.source.headers())
    except nvrtc.CompileError as error:
        errors = [line for line in str(error).splitlines() if "error" in line]
        return f"{program.kernel} for {gpu}, {program.built_for}\n  " + "\n  ".join(errors[:5] or [str(error)[:500]])
    return ""


def _structure(cut: SkinnyTiling) -> tuple[object, ...]:
    return cut.rows, cut.kind, cut.leaders > 0, -(-cut.band.lines // 64)


def _tile_structure(cut: PersistentTiling) -> tuple[object, ...]:
    few = cut.lines <= 64
    return cut.rows, cut.kind, cut.share > 1, cut.across > 1, cut.wide, cut.grouped, few


def _one_each(cuts: Iterable[Cut], structure: Callable[[Cut], object]) -> Iterator[Cut]:
    """One of each structure: the first."""
    yield from {structure(cut): cut for cut in reversed(list(cuts))}.values()


def _paged(size: int, kv_heads: int, block: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(2, 4, block, kv_heads, size, device="meta", dtype=dtype)


def _shapes(size: int, group: int, kv_heads: int, width: int, batch: int, short: bool) -> Iterator[tiles.Shape]:
    """What rows of a causal span, of a drafter's block and of trees are compiled for."""
    queries = torch.empty(batch, width, group * kv_heads, size, device="meta")
    room = 1024 if short else 8192
    cuts = (
        (cut_tiles(width * group, batch * kv_heads, size, short), False, False),
        (cut_blocks(width, group, batch * kv_heads, size, room), True, False),
        (cut_trees(width * group, batch * kv_heads, size, short), False, True),
    )
    for (cut, in_block, nodes), block, ranks in product(cuts, (16, 64), (None, queries)):
        span = cast(Span, SimpleNamespace(ranks_B2=ranks))  # all that is asked of it
        if cut is not None:
            yield hopper._shape(queries, _paged(size, kv_heads, block), span, cut, in_block, nodes)
        if not in_block and not nodes and (coded := cut_codes(width * group, batch * kv_heads, size, short)):
            yield hopper._shape(queries, _paged(size, kv_heads, block, torch.int8), span, coded, in_block)


def main() -> int:
    """Compile; 1 when a program is refused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="every program, not one of each structure")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="that compile at a time")
    chosen = parser.parse_args()
    found, wanted = 0, programs(chosen.full)
    alone = [*headers(wanted)]
    for text in refusals([*wanted, *alone], chosen.processes):
        sys.stderr.write(f"{text}\n")
        found += 1
    images = sum(len(program.gpus) for program in wanted)
    sys.stdout.write(f"{len(wanted)} programs in CUDA C++, {images} images, {len(alone)} headers, {found} refused\n")
    return found > 0


if __name__ == "__main__":
    sys.exit(main())
