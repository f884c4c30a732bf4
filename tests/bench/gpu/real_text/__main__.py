"""python -m tests.bench.gpu.real_text --vllm FOLDER: the SmolLM2 pair beside vLLM, a table last, JSON with --save.

Both sides have the same target, drafter, held-out prompts and limits, and answers end where the model ends them. All
start side by side; loads run in turn, once all are ready and the file of --after is there. Without --vllm paceline runs
alone; --tiny is a short run of the embedded pair on a CPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from deploy.shipped import SMOLLM2
from services.common.model.families import read_target_spec
from tests.bench.gpu.race.theirs import PeerOptions
from tests.bench.gpu.real_text.loads import Load, Row, as_json, table
from tests.bench.gpu.real_text.ours import Options, paceline_rows
from tests.bench.gpu.real_text.theirs import started
from tests.bench.gpu.results import circumstances
from tests.bench.nodes_offline import read_pair

PROMPTS = 66
MEMORY_BYTES, TINY_BYTES = 12 << 30, 1 << 28


def main() -> int:
    """Measures what was asked for."""
    asked = arguments()
    pair = read_pair("embedded" if asked.tiny else SMOLLM2, PROMPTS)
    loads = [Load(streams, heat, asked.tokens, asked.repeats) for heat in asked.temperature for streams in asked.group]
    options = Options(
        device="cpu" if asked.tiny else "cuda",
        slots=max(asked.group),
        memory_bytes=TINY_BYTES if asked.tiny else MEMORY_BYTES,
        flags=tuple(asked.flags.split()),
        weights=asked.drafter_weights,
    )
    drafts = (None, 0) if asked.plain else (None,)
    ends = read_target_spec(pair.target).eos_token_ids
    theirs = PeerOptions(Path(asked.vllm), memory_fraction=asked.vllm_memory)
    with started(pair, loads, asked.drafts if asked.vllm else (), theirs, ends) as peers:

        def wait() -> None:
            for peer in peers:
                peer.wait_ready()
            print("waits", flush=True)
            while asked.after and not Path(asked.after).exists():
                time.sleep(0.2)

        rows = paceline_rows(pair, loads, drafts, options, wait)
        for peer in peers:
            rows += peer.rows()
            print(table(rows), flush=True)
    if asked.save:
        save(Path(asked.save), rows)
    print(table(rows))
    return 0


def arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu.real_text", description=__doc__)
    parser.add_argument("--vllm", default="", help="folder with vLLM's packages")
    parser.add_argument("--vllm-memory", type=float, default=0.2, help="of the GPU's memory, for each K")
    parser.add_argument("--drafts", type=int, nargs="+", default=[7], help="K of vLLM, a process each; 0 is plain")
    parser.add_argument("--group", type=int, nargs="+", default=[1, 8, 32, 128], help="answers at once")
    parser.add_argument("--temperature", type=float, nargs="+", default=[0.0, 0.8], help="of the answers")
    parser.add_argument("--tokens", type=int, default=256, help="of an answer at most")
    parser.add_argument("--repeats", type=int, default=3, help="of each load, after one that is not counted")
    parser.add_argument("--plain", action="store_true", help="paceline without drafts too")
    parser.add_argument("--drafter-weights", choices=["auto", "dtype", "int8"], default="auto", help="of paceline's")
    parser.add_argument("--flags", default="", help="further flags of paceline's target")
    parser.add_argument("--save", default="", help="file of the results")
    parser.add_argument("--after", default="", help="a file that must be there before anything is measured")
    parser.add_argument("--tiny", action="store_true", help="little of everything on a CPU, to see that it runs")
    asked = parser.parse_args()
    if asked.tiny:
        asked.group, asked.tokens, asked.repeats, asked.temperature = [1, 2], 12, 1, [0.0]
    return asked


def save(file: Path, rows: list[Row]) -> None:
    """Write rows beside their circumstances."""
    result: dict[str, Any] = circumstances(SMOLLM2, "tests.bench.gpu.real_text") | {"rows": as_json(rows)}
    file.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
