"""What the commands tell of the pairs that they start."""

import json

import pytest

from deploy import demo, up
from deploy.cluster.fleet_service import to_pair
from deploy.cluster.registry import PairEntry
from services.common.pb.paceline.v1 import target_pb2

PAIR = PairEntry("pair-0", "127.0.0.1:1", "m", "ready", metrics_address="127.0.0.1:2", gpu_sharing="timeslice")


def test_make_up_tells_how_a_pair_shares_its_gpu() -> None:
    line = up.described(to_pair(PAIR))
    assert line == "pair-0   127.0.0.1:1   GPU sharing: timeslice   metrics http://127.0.0.1:2/metrics"


def test_the_last_line_of_the_demo_tells_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    ran = demo.Comparison("p", 8, 2.0, 100.0, 150.0, identical=True)
    target = target_pb2.TargetServiceDescribeResponse(gpu_sharing="mps", handoff_mode="flags_mps")
    demo.report([ran], [ran], target, 1.0, 2.0)
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (last["gpu_sharing"], last["handoff"]) == ("mps", "flags_mps")
