"""What the commands tell of the pairs that they start."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from deploy import demo, shipped, up
from deploy.cluster.fleet_service import to_pair
from deploy.cluster.registry import PairEntry
from deploy.stack import StackError, StackSettings
from services.common.pb.paceline.v1 import target_pb2

PAIR = PairEntry("pair-0", "127.0.0.1:1", "m", "ready", metrics_address="127.0.0.1:2", gpu_sharing="timeslice")


def test_make_up_tells_how_a_pair_shares_its_gpu() -> None:
    line = up.described(to_pair(PAIR))
    assert line == "pair-0   127.0.0.1:1   GPU sharing: timeslice   metrics http://127.0.0.1:2/metrics"


RAN = demo.Comparison("p", 8, 2.0, 100.0, 150.0, identical=True)


def test_the_demo_s_figures_tell_it_too() -> None:
    target = target_pb2.TargetServiceDescribeResponse(gpu_sharing="mps", handoff_mode="flags_mps")
    told = json.loads(demo.figures([RAN], [RAN], target, 1.0, 2.0))
    assert (told["gpu_sharing"], told["handoff"]) == ("mps", "flags_mps")


def test_the_demo_says_in_two_sentences_what_was_seen() -> None:
    slow = replace(RAN, tau=1.2, spec_tok_s=80.0, identical=False)
    said = demo.conclusion([RAN, RAN], [slow])
    assert "the same, token for token, in 2 of 3 answers" in said
    assert "1.50 times as fast in the middle (0.80 to 1.50)" in said
    assert "gave 1.73 tokens on average" in said and said.count(".\n") == 1
    assert "slower, at 0.80 times the speed" in demo.conclusion([slow], [slow])


def test_a_row_says_why_it_is_slower(capsys: pytest.CaptureFixture[str]) -> None:
    demo.table([RAN], [replace(RAN, tau=1.2, spec_tok_s=80.0)])
    _, fast, slow = capsys.readouterr().out.splitlines()
    assert fast.endswith("1.50")
    assert slow.endswith("0.80  slower: a round gave 1.20 tokens and took the time of 1.50 plain ones")


def test_the_demo_asks_questions_of_a_model_that_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shipped, "installed", lambda _: tmp_path)
    assert demo.asked(hybrid=False, model="", prompts="").prompts == demo.QUESTIONS
    assert demo.asked(hybrid=False, model="embedded", prompts="").settings == StackSettings()
    assert demo.asked(hybrid=True, model="", prompts="").settings.model_name == "paceline-embedded-hybrid"
    with pytest.raises(StackError, match="other is not in the box, smollm2 and embedded are"):
        demo.asked(hybrid=False, model="other", prompts="")
