"""Steps as a GPU runs them, on a machine without one: what they launch is bound to its kernels, and not launched.

Tensors lie in memory and say that they are a GPU's. Each launch of Triton must name the arguments that its kernel has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from triton.runtime.jit import JITFunction

from services.common.device.graph import StepGraphs
from services.common.kernels import ahead, cuda_program
from services.common.kernels.ahead import compiled_ahead
from services.common.kernels.linear import cublas
from services.common.model import load_block
from services.common.model.gpu.layers import KernelStack
from services.drafter.arena_view import ArenaView
from services.drafter.attachment import DraftRunner
from services.drafter.handoff.host import HostHandoff
from services.drafter.proposers.checkpoint import CheckpointProposer
from services.target.device.runner import Runner
from tests.bench.gpu.shapes import DELTA_4B
from tests.lossless.rig import Rig, RigSettings
from tests.support.tiny_checkpoints import TinyPair, TinyShape, write_tiny

CPU = torch.device("cpu")
HOPPER = SimpleNamespace(multi_processor_count=132)
OPTIONS = {"num_warps", "num_stages", "enable_fp_fusion", "launch_pdl", "maxnreg"}
SHAPE = TinyShape(
    vocab=1024, hidden=256, inner=512, layers=4, heads=8, kv_heads=2, head_dim=128, context=4096, draft_layers=2,
    block_size=16, taps=(1, 3),
)  # fmt: skip
"""Heads that the kernels in CUDA C++ are made for."""
SETTINGS = RigSettings(width=16, slots=16, buckets=(1, 16), dtype=torch.bfloat16, pack_tokens=256, context_limit=1024)


@contextmanager
def a_gpu(launched: Counter[str], forms: set[Any] | None = None) -> Iterator[None]:
    """Whatever asks is told of an H200; what would be compiled is counted, and `forms` get what it is compiled for."""

    def bound(kernel: Any, *args: Any, grid: Any, warmup: bool, **named: Any) -> Any:
        assert warmup, "nothing is launched"
        options = named.keys() - kernel.signature.parameters.keys()
        assert options <= OPTIONS, f"{kernel.__name__} has no {options - OPTIONS}"
        kernel.signature.bind(*args, **{name: value for name, value in named.items() if name not in options})
        launched[kernel.__name__] += 1
        if forms is not None:
            given = [*args, *(value for _, value in sorted(named.items()))]
            forms.add((kernel.__name__, *("tensor" if isinstance(value, torch.Tensor) else value for value in given)))

    def image(source: Any, name: str) -> bytes:
        launched[name] += 1
        if forms is not None:
            forms.add((name, source.text))
        return b""

    stream = SimpleNamespace(cuda_stream=0, synchronize=lambda: None)
    with ExitStack() as patches:
        for where, name, new in (
            (torch.Tensor, "is_cuda", True),
            (torch.cuda, "get_device_capability", lambda *_: (9, 0)),
            (torch.cuda, "get_device_properties", lambda *_: HOPPER),
            (torch.cuda, "current_stream", lambda *_: stream),
            (JITFunction, "run", bound),
            (cuda_program, "_compiled", image),
            (cuda_program, "call", lambda *_: None),
            (cublas, "keep_order", lambda: None),
        ):
            patches.enter_context(patch.object(where, name, new))
        forget()
        yield
    forget()


def forget() -> None:
    """Programs that were never compiled are nobody else's."""
    for answer in ahead._answers:
        answer()


def compile_all(runner: Runner) -> dict[tuple[int, int], int]:
    """In the place of captures."""
    steps = runner.steps
    runs = [step.run for step in steps._prefill.values()] + [step.run for step in steps._first.values()]
    with torch.inference_mode(), compiled_ahead(1):
        for run in [*runs, *(step.run for step in steps._verify.values())]:
            run()
    return {}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    folder: Path = tmp_path_factory.mktemp("pair")
    return write_tiny(folder, 3, SHAPE)


@pytest.mark.parametrize("nodes", [False, True])
def test_every_step_of_a_target_and_its_drafter_runs_without_a_launch(pair: TinyPair, nodes: bool) -> None:
    launched: Counter[str] = Counter()
    warm_up = patch.object(Runner, "warm_up", compile_all)
    settings = replace(SETTINGS, nodes=nodes)
    with a_gpu(launched), warm_up, Rig(pair.target, pair.drafter, settings) as rig:
        drafts(rig, pair.drafter)
    assert {"product", "attend"} <= launched.keys(), "kernels in CUDA C++ serve"
    assert {"commit_kernel", "_store_qkv_kernel", "_quantise_kernel"} <= launched.keys()
    of_trees = {"read_nodes_kernel", "tree_kernel", "merge_tree_kernel", "keep_path_kernel", "choose_nodes_kernel"}
    assert of_trees & launched.keys() == (of_trees if nodes else set())


def test_the_layers_that_are_compiled_ask_for_all_that_others_ask_for(tmp_path: Path) -> None:
    """The layers of this model are of two kinds, and two of the target's are read by the drafter."""
    shape = replace(SHAPE, layers=8, taps=(3, 5))
    other = write_tiny(tmp_path, 3, shape, family="qwen3_5_text", changes=DELTA_4B)
    settings = replace(SETTINGS, buckets=(16,), width=4)
    found: list[tuple[set[Any], int]] = []
    for every in (False, True):
        forms: set[Any] = set()
        launched: Counter[str] = Counter()
        with ExitStack() as patches:
            patches.enter_context(a_gpu(launched, forms))
            patches.enter_context(patch.object(Runner, "warm_up", compile_all))
            if every:
                whole = patch.object(KernelStack, "_running", lambda stack, taps: range(len(stack._layers)))
                patches.enter_context(whole)
            patches.enter_context(Rig(other.target, other.drafter, settings))
        found.append((forms, sum(launched.values())))
    (told, launches), (all_of_them, most) = found
    assert told == all_of_them
    assert launches < most


@pytest.mark.parametrize("nodes", [False, True])
def test_what_runs_before_a_step_is_recorded_asks_for_all_that_the_step_asks_for(pair: TinyPair, nodes: bool) -> None:
    """Of the second mode it leaves out layers, which the first one has run."""
    found: list[tuple[set[Any], int]] = []
    for before in (True, False):
        forms: set[Any] = set()
        launched: Counter[str] = Counter()

        def compiled(runner: Runner, before: bool = before) -> dict[tuple[int, int], int]:
            steps = runner.steps
            with torch.inference_mode(), compiled_ahead(1):
                for key, step in steps._verify.items():
                    (steps._before(key) if before else step.run)()
            return {}

        warm_up, settings = patch.object(Runner, "warm_up", compiled), replace(SETTINGS, nodes=nodes)
        with a_gpu(launched, forms), warm_up, Rig(pair.target, pair.drafter, settings):
            found.append((forms, sum(launched.values())))
    (told, launches), (all_of_them, most) = found
    assert told == all_of_them
    assert launches < most


@pytest.mark.parametrize(
    ("family", "changes", "kernels"),
    [
        ("qwen3_5_text", DELTA_4B, {"delta_rounds", "delta_prepare", "delta_chain"}),
        ("qwen3_5_text", {}, {"prepare_kernel", "scan_kernel"}),
        ("qwen3_moe", {}, {"route_kernel", "expert_kernel"}),
    ],
    ids=["recurrent", "recurrent, in Triton", "experts"],
)
def test_steps_of_other_families_run_without_a_launch(
    family: str, changes: dict[str, Any], kernels: set[str], tmp_path: Path, full: bool
) -> None:
    launched: Counter[str] = Counter()
    other = write_tiny(tmp_path, 3, SHAPE, family=family, changes=changes)
    settings = SETTINGS if full else replace(SETTINGS, buckets=(16,), width=4)
    warm_up = patch.object(Runner, "warm_up", compile_all)
    with a_gpu(launched), warm_up, Rig(other.target, other.drafter, settings):
        pass
    assert kernels <= launched.keys()


def drafts(rig: Rig, drafter: Path) -> None:
    """The same for blocks of a drafter, by weights of eight bits."""
    proposer = CheckpointProposer(load_block(drafter, torch.bfloat16, "cpu", int8=True), torch.bfloat16, True)
    shared = ArenaView.of(rig.arena, SHAPE.block_size)
    proposer.check(shared)
    runner = DraftRunner(shared, proposer, 1, StepGraphs(CPU), HostHandoff(CPU))
    run = patch.object(StepGraphs, "capture", lambda graphs, key, step, tensors: step())
    with compiled_ahead(1), run, patch.object(StepGraphs, "replay"):
        runner.warm_up(SETTINGS.buckets, rig.shapes.widths[1:], trees=rig.shapes.trees)
