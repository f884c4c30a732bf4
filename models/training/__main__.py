"""Run the training stages: python -m models.training --preset cpu [stage ...]."""

import argparse
import sys
import sysconfig
import time
from dataclasses import replace
from pathlib import Path

from models.training.foreign.command import main as train_for_target
from models.training.settings import PRESETS, with_minutes
from models.training.stages import SHARED, STAGES
from models.training.workers import run_stage
from services.common.model import ModelError


def main() -> None:
    """Run the chosen stages in order; each finds the work of the earlier ones on disk.

    `drafter --target DIR` is another program: it trains a drafter for a checkpoint that exists.
    """
    given = sys.argv[1:]
    if given[:1] == ["drafter"] and any(word.split("=")[0] in ("--target", "--help", "-h") for word in given):
        try:
            train_for_target(given[1:])
        except (ModelError, OSError, ValueError) as error:
            sys.exit(f"drafter: {error}")
        return
    arguments = _parser().parse_args()
    settings = with_minutes(
        replace(
            PRESETS[arguments.preset],
            device=arguments.device,
            work=arguments.work or PRESETS[arguments.preset].work,
            out=arguments.out or PRESETS[arguments.preset].out,
            stdlib=arguments.stdlib,
            seed=arguments.seed,
            compiled=PRESETS[arguments.preset].compiled and not arguments.eager,
        ),
        arguments.target_minutes,
        arguments.drafter_minutes,
    )
    for stage in arguments.stages or STAGES:
        started = time.monotonic()
        if stage in SHARED and settings.workers > 1:
            run_stage(STAGES[stage], settings)
        else:
            STAGES[stage](replace(settings, workers=1))
        print(f"{stage}: {time.monotonic() - started:.1f} s", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m models.training")
    parser.add_argument("stages", nargs="*", help=f"stages to run: {', '.join(STAGES)}")
    parser.add_argument("--preset", choices=sorted(PRESETS), default="cpu")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--work", type=Path, help="what stages leave for later ones; default: below build")
    parser.add_argument("--out", type=Path, help="where the pair is written; default: its folder below models")
    parser.add_argument("--stdlib", type=Path, default=Path(sysconfig.get_path("stdlib")), help="training sources")
    parser.add_argument("--target-minutes", type=float)
    parser.add_argument("--drafter-minutes", type=float)
    parser.add_argument("--eager", action="store_true", help="compile nothing")
    parser.add_argument("--seed", type=int, default=1)
    return parser


if __name__ == "__main__":
    main()
