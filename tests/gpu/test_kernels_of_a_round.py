"""How many kernels a plain round of one request launches: what sharing a GPU costs each of them is paid every round."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
import torch

from services.target.device.shapes import SHORT_VERIFY, VERIFY
from tests.bench.gpu.rig import Rig, RigSettings
from tests.bench.gpu.shapes import QWEN3_4B
from tests.kernels.gpu.devices import INTERPRETED

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")

CONTEXT, MEMORY_BYTES = 768, 24 << 30
KERNEL = 0
"""`CU_GRAPH_NODE_TYPE_KERNEL`."""
MOST = 200


def kernels_of(graph: torch.cuda.CUDAGraph) -> int:
    """Kernels among the nodes of a graph that was kept."""
    driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_size_t()
    raw = ctypes.c_void_p(graph.raw_cuda_graph())
    assert driver.cuGraphGetNodes(raw, None, ctypes.byref(count)) == 0
    nodes = (ctypes.c_void_p * count.value)()
    assert driver.cuGraphGetNodes(raw, nodes, ctypes.byref(count)) == 0
    kinds = [ctypes.c_int() for _ in nodes]
    for node, kind in zip(nodes, kinds, strict=True):
        assert driver.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)) == 0
    return sum(kind.value == KERNEL for kind in kinds)


def test_a_plain_round_of_one_request_launches_few_kernels(tmp_path: Path) -> None:
    rig = Rig(RigSettings(QWEN3_4B, "cuda", "bfloat16", 1, (1, 4), 2048, MEMORY_BYTES), tmp_path)
    rig.seat(1, CONTEXT)
    found = {}
    for kind in (SHORT_VERIFY, VERIFY):
        step, graph = rig.steps.verify(1, 1, "greedy", kind), torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(graph):
            step.run()
        found[kind] = kernels_of(graph)
        print(kind, found[kind], "kernels", round(rig.micros(lambda kind=kind: replayed(rig, kind))), "us")  # type: ignore[misc]
    assert found[SHORT_VERIFY] <= MOST
    assert found[VERIFY] >= found[SHORT_VERIFY] + 2 * QWEN3_4B.layers


def replayed(rig: Rig, kind: str) -> None:
    """A round from the same context each time."""
    rig.steps.graphs.replay((kind, 1, 1, "greedy"))
