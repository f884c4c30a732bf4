"""python -m tests.bench.gpu.slices: one round after the other from the same state, bit for bit, beside other processes.

A process that shares a GPU without MPS is stopped in the middle of its kernels, so what starts too early reads what is
not there yet. So many processes replay the same captured verify, or the same prompt in a pack's segments, with the same
inputs. Its places hold other numbers each time before; whatever it writes must be equal. What differs is told by the
first layer whose keys or values do. With `--arm late` each CTA of every kernel that starts early works only some time
after its wait. What a kernel reads before its own wait is then not there yet; digests must be those of `--arm none`.
`--run MODULE` runs another bench with the kernels of an arm.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels import cuda, cuda_program, pdl  # alone: kernels take the choice when they are imported

ARMS = ("all", "no-triton", "no-cuda", "none", "late")
"""Which kernels start early: all that can, none of Triton's, none in CUDA C++, or none; or all do, and work late."""
HYBRID = "qwen3.5-4b"
LATE_CUH = """#pragma once
__device__ __forceinline__ void await_previous() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  const unsigned long long wait = ((blockIdx.x + 3 * blockIdx.y) * 2654435761u >> 29) * 3000ull;
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin)::"memory");
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  } while (now - begin < wait);
}
__device__ __forceinline__ void allow_next() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
"""


def choose(arm: str) -> None:
    """Sets which kernels start early; before any kernel is imported."""
    if arm in ("no-triton", "none"):
        pdl.PDL, pdl.LAUNCH = False, pdl.EXACT
    if arm in ("no-cuda", "none"):
        launch = cuda_program.CudaProgram.launch

        def late(self: Any, grid: tuple[int, int], *arguments: Any, early: bool = True) -> None:
            launch(self, grid, *arguments, early=False)

        cuda_program.CudaProgram.launch = late  # type: ignore[method-assign]
    if arm == "late":
        read = cuda.read
        cuda.read = lambda name: LATE_CUH if name == "pdl.cuh" else read(name)  # type: ignore[assignment]
        pdl.await_previous = _await_late


@triton.jit  # type: ignore[untyped-decorator]
def _await_late(PDL: tl.constexpr) -> None:
    if PDL:
        tl.extra.cuda.gdc_wait()
        wait = (tl.program_id(0) * 7 + tl.program_id(1) * 3) % 8 * 3000
        begin = tl.extra.cuda.globaltimer()
        now = begin
        while now - begin < wait:
            now = tl.extra.cuda.globaltimer()


@dataclass
class Seen:
    """Runs of a shape, those that differed, and what the first of them did."""

    runs: int = 0
    differ: int = 0
    digest: str = ""
    first: str = ""


class Watch:
    """Keeps what a round writes the first time, and compares every later one on the device."""

    def __init__(self, kv: Tensor, slots_T: Tensor, logits: Tensor) -> None:
        """`kv` [L, 2, N, S, H, D]; the flat places of the round's rows; its logits."""
        self._kv, self._slots_T, self._logits = kv, slots_T, logits
        self._truth, self._truth_logits = self._written(), logits.clone()
        self._kept, self._kept_logits = self._truth.clone(), logits.clone()
        self._other = torch.randn_like(self._truth) * 3
        self.differ = torch.zeros((), dtype=torch.int64, device=kv.device)

    def _written(self) -> Tensor:
        return self._kv.flatten(2, 3)[:, :, self._slots_T]

    def spoil(self) -> None:
        """Leave other numbers where the round writes."""
        self._kv.flatten(2, 3)[:, :, self._slots_T] = self._other
        self._other = self._other.roll(1, 2)

    def look(self) -> None:
        """Compare what is written now."""
        now = self._written()
        unlike = (now != self._truth).any() | (self._logits != self._truth_logits).any()
        first = unlike & (self.differ == 0)
        self._kept = torch.where(first, now, self._kept)
        self._kept_logits = torch.where(first, self._logits, self._kept_logits)
        self.differ += unlike

    def digest(self) -> str:
        """Of what was written the first time."""
        told = hashlib.sha256()
        for tensor in (self._truth, self._truth_logits):
            told.update(tensor.contiguous().view(torch.uint8).cpu().numpy().tobytes())
        return told.hexdigest()[:12]

    def words(self) -> str:
        """Where the first that differed did."""
        if not int(self.differ):
            return ""
        unlike = self._kept != self._truth  # L 2 T H D
        layers = unlike.flatten(1).any(1).nonzero().flatten().tolist()
        if not layers:
            odd = (self._kept_logits != self._truth_logits).flatten(0, -2)
            rows = odd.any(1).nonzero().flatten().tolist()
            return f"logits alone, rows {rows}, {int(odd.sum())} numbers"
        at = unlike[layers[0]]
        heads = sorted(set(at.any(0).any(0).any(-1).nonzero().flatten().tolist()))
        size = float((self._kept[layers[0]].float() - self._truth[layers[0]].float()).abs().max())
        return (
            f"from layer {layers[0]} on, rows {_spans(at)}, heads {heads}, {int(at[0].sum())} numbers of keys, "
            f"{int(at[1].sum())} of values, by {size:.3g}; in the last layer rows {_spans(unlike[layers[-1]])}"
        )


def _spans(unlike_2THD: Tensor) -> str:
    """The rows that differ, as spans."""
    rows = unlike_2THD.any(0).any(-1).any(-1).nonzero().flatten().tolist()
    begins = [row for row in rows if row - 1 not in rows]
    ends = [row for row in rows if row + 1 not in rows]
    return ", ".join(f"{begin}-{end}" for begin, end in zip(begins, ends, strict=True))


def watch_rounds(rig: Any, bucket: int, width: int, context: int, seconds: float) -> Seen:
    """Replays a verify for so many seconds."""
    rig.seat(bucket, context, 64)
    key = rig.verify_key(bucket, width, context)
    step = rig.steps.verify(bucket, width, "greedy", key[0])

    def once() -> None:
        rig.reset(bucket, context)
        rig.steps.graphs.replay(key)

    return _watch(rig, once, _places(rig, bucket, context, width), lambda: step.logits_BWV, seconds)


def watch_pack(rig: Any, segments: int, context: int, seconds: float) -> Seen:
    """Replays a pack of one prompt's segments for so many seconds."""
    from services.target.core.plan import Chunk  # after the choice
    from services.target.device.packing import packed

    shape = min(rig.pool.settings.packs, key=lambda shape: abs(shape.segments - segments))
    rig.seat(1, context, shape.tokens + 64)
    ids = tuple(2 + place * 7 % 301 for place in range(shape.tokens))
    pack = packed([Chunk(0, 0, context, ids, last=True)], [shape])[0]
    rig.steps.pack.set(pack)
    places_T = _places(rig, 1, context, shape.tokens)
    return _watch(
        rig,
        lambda: rig.steps.graphs.replay(("prefill", *shape)),
        places_T,
        lambda: rig.steps.pack.hidden_FD[:1],
        seconds,
    )


def _places(rig: Any, rows: int, context: int, width: int) -> Tensor:
    """The flat places of so many positions of each of the first slots."""
    size, places = rig.pool.settings.block_size, context + torch.arange(width, device=rig.device)
    flat: Tensor = (rig.pool.state.block_table_SN[:rows][:, places // size] * size + places % size).flatten().long()
    return flat


def _watch(rig: Any, once: Callable[[], None], places_T: Tensor, logits: Callable[[], Tensor], seconds: float) -> Seen:
    once()
    once()
    kv = max(rig.pool.states.paged, key=lambda each: each.shape[2])
    watch, seen = Watch(kv, places_T, logits()), Seen()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for _ in range(20):
            watch.spoil()
            once()
            watch.look()
        rig.synchronise()
        seen.runs += 20
    seen.differ, seen.digest, seen.first = int(watch.differ), watch.digest(), watch.words()
    return seen


def run(arguments: argparse.Namespace) -> int:
    """One process's part; prints a line for each shape."""
    choose(arguments.arm)
    from tests.bench.gpu.hybrid.rounds import FAMILY
    from tests.bench.gpu.rig import Rig, RigSettings  # after the choice
    from tests.bench.gpu.shapes import DELTA_4B, MIXTURES, QWEN3_5_4B, SHAPES, mixture

    device, dtype = ("cpu", "float32") if arguments.tiny else ("cuda", "bfloat16")
    shapes = [tuple(map(int, one.split("x"))) for one in arguments.shapes]
    buckets = tuple(sorted({1, *(bucket for bucket, _ in shapes)}))
    widths = tuple(sorted({1, *(width for _, width in shapes)}))
    chunk = max(16, *(64 * segments for segments in arguments.segments), 256) if not arguments.tiny else 32
    memory = 1 << 28 if arguments.tiny else arguments.gigabytes << 30
    shape, family, changes = SHAPES["tiny" if arguments.tiny else "qwen3-4b"], "qwen3", dict[str, Any]()
    if not arguments.tiny and arguments.model in MIXTURES:
        shape, family, changes = mixture(arguments.model)
    elif not arguments.tiny and arguments.model == HYBRID:
        shape, family, changes = QWEN3_5_4B, FAMILY, DELTA_4B
    elif not arguments.tiny:
        shape = SHAPES[arguments.model]
    settings = RigSettings(shape, device, dtype, buckets[-1], widths, 2048, memory, chunk, family, changes)
    start, found = time.perf_counter(), 0
    module = "services.target.build_device"
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch(f"{module}.buckets_of", return_value=buckets),
        mock.patch("services.target.device.steps.MODES", ("greedy",)),
    ):
        rig = Rig(settings, Path(folder))
        print(f"{arguments.arm}: built in {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
        if arguments.gate:
            Path(arguments.gate, str(os.getpid())).touch()
            limit = time.perf_counter() + 120
            while len(list(Path(arguments.gate).iterdir())) < arguments.beside + 1 and time.perf_counter() < limit:
                time.sleep(0.05)
        for bucket, width in shapes:
            seen = watch_rounds(rig, bucket, width, arguments.context, arguments.seconds)
            found += seen.differ
            print(json.dumps({"arm": arguments.arm, "requests": bucket, "width": width, **vars(seen)}), flush=True)
        for segments in arguments.segments:
            seen = watch_pack(rig, segments, arguments.context // 64 * 64, arguments.seconds)
            found += seen.differ
            print(json.dumps({"arm": arguments.arm, "segments": segments, **vars(seen)}), flush=True)
        rig.worker.close()
    return min(found, 1)


def main(argv: Sequence[str]) -> int:
    """Runs so many processes beside one another."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu.slices", description=__doc__)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--model", default="qwen3-4b", help=f"a shape, a mixture or {HYBRID}")
    parser.add_argument("--shapes", nargs="*", default=[], help="requests x width")
    parser.add_argument("--segments", nargs="*", type=int, default=[], help="of packs of one prompt")
    parser.add_argument("--run", nargs=argparse.REMAINDER, help="a module and its arguments, with the arm's kernels")
    parser.add_argument("--context", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=10, help="of each shape")
    parser.add_argument("--beside", type=int, default=0)
    parser.add_argument("--gigabytes", type=int, default=16, help="that each process may take")
    parser.add_argument("--arm", choices=ARMS, default="all")
    parser.add_argument("--gate", default="", help="folder in which processes meet before they begin")
    chosen = parser.parse_args(argv)
    if chosen.run:
        choose(chosen.arm)
        sys.argv[1:] = chosen.run[1:]
        runpy.run_module(chosen.run[0], run_name="__main__", alter_sys=True)
        return 0
    if not chosen.beside or chosen.gate:
        return run(chosen)
    with tempfile.TemporaryDirectory() as gate:
        command = [sys.executable, "-m", "tests.bench.gpu.slices", *argv, "--gate", gate]
        processes = [subprocess.Popen(command) for _ in range(chosen.beside + 1)]
        return max(process.wait() for process in processes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
