"""A group of the race: its plan, what becomes of measurements, and vLLM's process, all with made-up engines."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.bench.gpu.load import Arrival, Run, frames_of
from tests.bench.gpu.race import __main__ as race
from tests.bench.gpu.race.estimate import LIMIT_S, saved_rows, seconds_of, told
from tests.bench.gpu.race.group import Group
from tests.bench.gpu.race.merge import MergeError, add, merge
from tests.bench.gpu.race.meter import Meter, Sample, beside, parsed
from tests.bench.gpu.race.ours import load_of, streams_of
from tests.bench.gpu.race.plan import GROUPS, OUTS, REPEATS, Choice, Job, Leg, plan, repeats_of, requests_of
from tests.bench.gpu.race.rows import Drafter, Measured, Repeat, row_of
from tests.bench.gpu.race.theirs import PeerOptions, order_of, peer_leg
from tests.bench.gpu.rig import RigSettings
from tests.bench.gpu.shapes import PROFILES, TINY, raced
from tests.bench.race import RESULTS, table
from tests.unit.bench.fake_vllm import write_fake_sglang, write_fake_vllm
from tests.unit.bench.test_race import KEYS

SETTINGS = RigSettings(TINY, "cpu", "float32", 4, (1, 4, 8, 16), 2048, 1 << 30)
LOAD = Job("P65", 128, 8, "adaptive", None)


def measured(tokens: int, *seconds: float, streams: int = 1) -> Measured:
    """Repeats of these lengths whose prompts took a second, and streams with rounds of 1, 3 and 2 tokens."""
    repeats = tuple(Repeat(10.0 * index, 10.0 * index + one, 1.0, tokens) for index, one in enumerate(seconds))
    return Measured(repeats, (((0.5, 1), (0.6, 1), (0.8, 3), (0.9, 2), (1.0, 1)),) * streams)


def result(*rows: dict[str, Any], **others: Any) -> dict[str, Any]:
    known = {"bench": "race", "device": "a GPU", "commit": "abc", "versions": {"vllm": "1"}, "command": "race"}
    return known | {"groups": {"1,8": {"gpu": "x"}}, "rows": list(rows)} | others


@pytest.mark.parametrize(("group", "drafts"), [("1,8", {15, 7}), ("32", {7, 3}), ("64,128", {7, 3})])
def test_a_group_runs_paceline_then_vllm_at_each_k_then_paceline(group: str, drafts: set[int]) -> None:
    legs = plan(Choice(group))
    assert [leg.side for leg in legs] == ["paceline", "vllm", "vllm", "vllm", "paceline"]
    theirs = [{job.k for job in leg.jobs} for leg in legs[1:4]]
    assert {len(ks) for ks in theirs} == {1}
    assert theirs[-1] == {0}
    assert theirs[0] | theirs[1] == drafts
    loads = {(job.out, job.concurrency) for leg in legs for job in leg.jobs}
    assert loads == {(out, count) for out in OUTS for count in requests_of(group)}
    for leg in legs:
        assert len(set(leg.jobs)) == len(leg.jobs)
    assert set(legs[-1].jobs) < set(legs[0].jobs), "what is chosen is measured at both ends"


def test_a_group_may_have_other_loads_and_fewer_drafts() -> None:
    legs = plan(Choice("8,32", drafts=(15, 7), parts=("drafts", "plain")))
    found = [{(job.concurrency, job.k) for job in leg.jobs} for leg in legs if leg.side == "vllm"]
    assert found == [{(8, 15)}, {(8, 7), (32, 7)}, {(8, 0), (32, 0)}]


def test_closed_loops_are_a_part_that_uses_the_engines_of_the_others() -> None:
    legs = plan(Choice("32", parts=("drafts", "closed")))
    assert [leg.side for leg in legs] == ["paceline", "vllm", "vllm", "paceline"]
    loops = [[job.k for job in leg.jobs if job.seconds] for leg in legs]
    assert loops == [[None], [3], [7], []], "drift shows in the other loads"
    alone = plan(Choice("8,32,128", parts=("closed",), drafts=(3,)))
    assert [[(job.concurrency, job.k) for job in leg.jobs] for leg in alone] == [
        [(32, None), (128, None)], [(32, 3), (128, 3)], [(32, None), (128, None)],
    ]  # fmt: skip
    assert {job.go for leg in alone for job in leg.jobs} == {"closed-P65-512-32", "closed-P65-512-128"}


def test_a_group_may_be_cut_to_one_leg_of_paceline() -> None:
    assert [leg.side for leg in plan(Choice("8", parts=("plain",), once=True))] == ["paceline", "vllm"]


def test_every_command_fits_into_its_time_by_what_was_saved() -> None:
    rows = saved_rows(RESULTS)
    choices = [
        Choice("1,8", parts=("drafts",)),
        Choice("32", parts=("drafts", "closed"), fixed=False),
        Choice("64,128", parts=("drafts", "closed"), fixed=False, once=True),
        Choice("1,8,32,64,128", parts=("plain",), once=True),
    ]
    for choice in choices:
        legs = plan(choice)
        assert sum(seconds_of(leg, rows) for leg in legs) < LIMIT_S, choice
        assert "which fits" in told(legs, rows)
    assert "does not fit" in told(plan(Choice("64,128")), rows)
    assert saved_rows(RESULTS, "qwen3-8b") != rows == saved_rows(RESULTS, "qwen3-14b")


@pytest.mark.parametrize("group", ["0", "8,", "8;32", "129"])
def test_a_group_that_cannot_run_is_refused(group: str) -> None:
    with pytest.raises(ValueError, match=r"129|invalid literal|not all"):
        requests_of(group)


def test_every_concurrency_is_in_one_group_so_a_go_is_of_one_run() -> None:
    counts = [count for group in GROUPS for count in requests_of(group)]
    assert sorted(counts) == sorted(set(counts)) == [1, 8, 32, 64, 128]


def test_a_row_is_made_of_medians_and_keeps_every_repeat() -> None:
    samples = [Sample(1.0, 1700.0, 600.0, 4), Sample(12.0, 1600.0, 700.0, 1), Sample(99.0, 200.0, 80.0, 1)]
    row = row_of("paceline", LOAD, [measured(1024, 4.0, 5.0), measured(1024, 6.0)], samples)
    assert row.keys() == KEYS
    assert (row["go"], row["decode_tok_s"], row["whole_tok_s"], row["prompts_s"]) == ("P65-128-8", 254, 205, 1.0)
    assert (row["clock_mhz"], row["watts"]) == (1650, 650), "of the samples beside its repeats"
    assert [repeat["whole_tok_s"] for repeat in row["all"]] == [256, 205, 171]
    assert row["tau"] == 2.0, "neither the prompt's token nor the last round, which may be cut, counts"
    assert row["accepted_by_position"] == [0.667, 0.333]
    assert row["ttft_ms"] == {"p50": 500.0, "p99": 500.0}
    assert row["itl_ms"] == {"p99": 200.0}
    json.dumps(row)


def test_a_row_without_a_sample_or_a_stream_claims_none() -> None:
    job = Job(None, 128, 8, "plain", 0)
    row = row_of("vllm-1", job, [Measured(measured(1024, 4.0).repeats, ())], [])
    assert [row[name] for name in ("clock_mhz", "tau", "accepted_by_position")] == [None] * 3
    assert row["itl_ms"] == row["itl_beside_prompts_ms"] == {"p99": None}


def test_gaps_that_begin_before_the_last_first_token_are_told_apart() -> None:
    streams = ((0.1, 1), (0.3, 1), (0.35, 1)), ((0.2, 1), (0.21, 1))
    row = row_of("paceline", LOAD, [Measured(measured(1024, 4.0).repeats, streams)], [])
    assert row["itl_ms"] == row["itl_beside_prompts_ms"] == {"p99": 200.0}
    streams = ((0.1, 1), (0.12, 1), (0.35, 1)), ((0.11, 1), (0.12, 1))
    row = row_of("paceline", LOAD, [Measured(measured(1024, 4.0).repeats, streams)], [])
    assert (row["itl_ms"], row["itl_beside_prompts_ms"]) == ({"p99": 230.0}, {"p99": 20.0})


def test_a_closed_loop_has_the_speed_of_its_seconds_and_no_prompts_apart() -> None:
    loop = Job("P65", 512, 32, "adaptive", None, 20.0)
    measured_ = Measured((Repeat(3.0, 23.0, 0.0, 40_000),), measured(1, 1.0, streams=2).streams)
    done = Group([Leg("paceline", (LOAD, loop))], {"paceline": lambda leg: ("abc", [measured(1024, 4.0), measured_])})
    (row,) = done.rows([], Drafter("int8", short_blocks=True), closed=True)
    assert row.keys() == KEYS
    assert (row["go"], row["whole_tok_s"], row["decode_tok_s"], row["prompts_s"]) == (loop.go, 2000, None, None)
    assert (row["drafter_weights"], row["short_blocks"]) == ("int8", True)
    assert [one["go"] for one in done.rows([])] == [LOAD.go]


def test_legs_that_lie_apart_are_marked() -> None:
    speeds = {"paceline": iter([4.0, 5.0])}

    def paceline(leg: Leg) -> tuple[str, list[Measured]]:
        return "abc", [measured(1024, next(speeds["paceline"])) for _ in leg.jobs]

    told: list[tuple[int, int]] = []
    legs = [Leg("paceline", (LOAD,))] * 2
    done = Group(legs, {"paceline": paceline}, lambda so_far: told.append((len(so_far.seconds), len(so_far.rows([])))))
    assert told == [(1, 1), (2, 1)], "a machine may be taken away before the end"
    assert done.marks() == [{"system": "paceline", "go": LOAD.go, "mode": "adaptive", "k": None, "apart": 0.25}]
    assert len(done.rows([])) == 1


def test_a_group_becomes_the_tables_lines_with_ratios() -> None:
    order: list[str] = []

    def side(name: str, seconds: float) -> Any:
        def run(leg: Leg) -> tuple[str, list[Measured]]:
            order.append(name)
            return "0.99", [measured(job.out * job.concurrency, *[seconds] * REPEATS) for job in leg.jobs]

        return run

    done = Group(plan(Choice("64,128")), {"paceline": side("paceline", 4.0), "vllm": side("vllm", 5.0)})
    assert order == ["paceline", "vllm", "vllm", "vllm", "paceline"]
    rows = done.rows([])
    assert {row["system"] for row in rows} == {"paceline", "vllm-0.99"}
    assert not done.marks()
    lines = table(merge(None, result(*rows))["rows"]).splitlines()[2:]
    assert len(lines) == 2 * len(OUTS) * len(requests_of("64,128"))
    assert all(line.endswith(("| 1.34 | 1.25 |", "| 1.33 | 1.25 |")) for line in lines), lines


def test_groups_merge_and_a_load_that_is_run_again_is_replaced_whole(tmp_path: Path) -> None:
    first = row_of("paceline", LOAD, [measured(1024, 4.0)], [])
    theirs = first | {"system": "vllm-1", "mode": "fixed", "k": 7}
    other = row_of("paceline", Job("P65", 128, 32, "adaptive", None), [measured(4096, 4.0)], [])
    path = add(tmp_path, "2030-01-01", result(first, theirs))
    assert add(tmp_path, "2030-01-01", result(other, groups={"32": {"gpu": "y"}})) == path
    again = row_of("paceline", LOAD, [measured(1024, 3.0)], [])
    assert add(tmp_path, "2030-01-01", result(again, groups={"1,8": {"gpu": "z"}})) == path
    found = json.loads(path.read_text())
    assert found["rows"] == [again, other], "no row of the machine before stays beside the new ones"
    assert found["groups"] == {"1,8": {"gpu": "z"}, "32": {"gpu": "y"}}


@pytest.mark.parametrize("other", [{"device": "another GPU"}, {"versions": {"vllm": "2"}}])
def test_what_was_measured_elsewhere_is_not_merged(other: dict[str, Any], tmp_path: Path) -> None:
    add(tmp_path, "2030-01-01", result())
    with pytest.raises(MergeError, match=next(iter(other))):
        add(tmp_path, "2030-01-01", result(**other))
    assert json.loads((tmp_path / "unmerged_race_2030-01-01.json").read_text()) == result(**other), "nothing is lost"


def test_another_commit_of_the_same_day_gets_a_file_that_is_newer_by_name(tmp_path: Path) -> None:
    first, second = (add(tmp_path, "2030-01-01", result(commit=commit)) for commit in ("abc", "def"))
    assert second.name == "race_2030-01-01_def.json" > first.name
    assert add(tmp_path, "2030-01-01", result(commit="def")) == second


def test_samples_are_what_nvidia_smi_prints() -> None:
    assert parsed("1980, 612.34, 0x0000000000000004\n", 3.0) == Sample(3.0, 1980.0, 612.34, 4)
    assert parsed("[N/A], 612.34, 0x4", 3.0) is None
    assert parsed("Unable to determine the device handle", 3.0) is None
    assert beside([Sample(1.0, 1.0, 1.0, 5)], [(0.0, 2.0)]).reasons == 4, "idle is no limit"


def test_a_meter_samples_while_its_context_lasts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 1980, 612.3, 0x4\necho no such thing\nexec sleep 60\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with Meter() as meter:
        end = time.monotonic() + 20
        while not meter.samples and time.monotonic() < end:
            time.sleep(0.01)
    assert [(one.clock_mhz, one.watts, one.reasons) for one in meter.samples] == [(1980.0, 612.3, 4)]


@pytest.mark.parametrize(
    ("folder", "sentence"), [("", "folder of a peer"), ("/nowhere", "is no folder"), (".", "nvidia-smi")]
)
def test_what_the_race_needs_is_said_before_it_starts(
    folder: str, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("sys.argv", ["race", "--vllm", folder])
    with pytest.raises(SystemExit):
        race.main()
    assert sentence in capsys.readouterr().err


def test_arrivals_become_streams() -> None:
    arrivals = [Arrival(5.5, 1, {"a": 1}, frozenset()), Arrival(6.0, 2, {"a": 3, "b": 1}, frozenset({"a"}))]
    assert streams_of(Run(1.0, [], arrivals), 5.0) == [((0.5, 1), (1.0, 3)), ((1.0, 1),)]


def test_few_requests_are_repeated_more_often() -> None:
    """What one stream accepts is chance."""
    assert [repeats_of(count) for count in (1, 2, 8, 24, 32, 128)] == [25, 25, 9, 3, 3, 3]
    assert all(repeats_of(count) % 2 for count in range(1, 129)), "a median is one of them"


def test_vllm_is_told_the_profile_cut_to_k(tmp_path: Path) -> None:
    order = order_of(Leg("vllm", (Job("P65", 128, 8, "fixed", 7),)), SETTINGS, tmp_path, 0.5)
    assert order["rates"] == list(PROFILES["P65"][:7])
    assert order["jobs"] == [{"out": 128, "concurrency": 8, "seconds": 0.0, "repeats": 9}]
    plain = order_of(Leg("vllm", (Job(None, 128, 8, "plain", 0),)), SETTINGS, tmp_path, 0.5)
    assert (plain["k"], plain["rates"]) == (0, [])
    flat = order_of(Leg("vllm", (Job("flat", 128, 8, "fixed", 15),)), SETTINGS, tmp_path, 0.5)
    assert flat["rates"] == [1.0] * 5 + [0.5] + [0.0] * 9


@pytest.mark.parametrize("k", [7, 0])
def test_vllms_process_runs_out_of_its_folder(k: int, tmp_path: Path) -> None:
    write_fake_vllm(tmp_path)
    jobs = tuple(Job("P65" if k else None, out, 2, "fixed" if k else "plain", k) for out in (12, 9))
    version, found = peer_leg(Leg("vllm", jobs), SETTINGS, PeerOptions(tmp_path))
    assert version == "0.99"
    assert [[repeat.tokens for repeat in one.repeats] for one in found] == [[24] * repeats_of(2), [18] * repeats_of(2)]
    assert [[[count for _, count in stream] for stream in one.streams] for one in found] == [[[4, 4]] * 2] * 2


def test_routes_of_a_mixture_with_made_up_weights_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nowhere else, so that a dense model's peer is told what it always was."""
    shape, family, changes = raced("qwen3-30b-a3b", "fp8")
    assert (shape.layers, changes["num_experts"], changes["quantization_config"]["quant_method"]) == (48, 128, "fp8")
    told: list[Mapping[str, str]] = []

    def answer(command: Sequence[str], env: Mapping[str, str], **options: object) -> None:
        told.append(env)
        Path(command[-1]).write_text('{"version": "0", "measured": []}')

    monkeypatch.setattr(subprocess, "run", answer)
    for settings in (SETTINGS, replace(SETTINGS, family=family, changes=changes)):
        peer_leg(Leg("vllm", (Job("P65", 8, 1, "fixed", 7),)), settings, PeerOptions(tmp_path))
    strategies = [env.get("VLLM_MOE_ROUTING_SIMULATION_STRATEGY") for env in told]
    assert strategies == [None, "uniform_random"]


def test_sglang_races_the_flat_profile_alone_since_its_steps_bring_a_mean() -> None:
    legs = plan(Choice("8", profiles=("P65", "flat"), peers=("vllm", "sglang"), once=True))
    found = {side: {job.profile for leg in legs if leg.side == side for job in leg.jobs} for side in ("vllm", "sglang")}
    assert found == {"vllm": {"P65", "flat", None}, "sglang": {"flat", None}}
    assert all(len({(job.profile, job.k) for job in leg.jobs}) == 1 for leg in legs if leg.side == "sglang")


@pytest.mark.parametrize("k", [7, 0])
def test_sglangs_process_runs_out_of_its_folder_and_tells_when_tokens_come(k: int, tmp_path: Path) -> None:
    """The package made up for this refuses a mean beyond its rows, and one where there are no drafts."""
    write_fake_sglang(tmp_path)
    profile, mode = ("flat", "fixed") if k else (None, "plain")
    jobs = (Job(profile, 12, 2, mode, k), Job(profile, 12, 2, mode, k, seconds=0.1))
    version, (load, loop) = peer_leg(Leg("sglang", jobs), SETTINGS, PeerOptions(tmp_path))
    assert version == "0.5"
    assert [repeat.tokens for repeat in load.repeats] == [24] * repeats_of(2)
    assert [[count for _, count in stream] for stream in load.streams] == [[8, 4] if k else [1] * 12] * 2
    assert loop.repeats[0].tokens > 0 and {sum(count for _, count in stream) for stream in loop.streams} <= {
        *range(3, 13)
    }


def test_each_peer_has_a_table_of_its_own() -> None:
    rows = [
        row_of(system, LOAD, [measured(1024, seconds)], ())
        for system, seconds in (("vllm-1", 8.0), ("sglang-2", 6.0), ("paceline", 4.0))
    ]
    assert "| 1.67 | 1.50 |" in table(rows, "sglang") and "SGLang: decode" in table(rows, "sglang")
    assert "| 2.34 | 2.00 |" in table(rows)


def test_each_repeat_draws_anew_what_it_accepts() -> None:
    """One draw, repeated, would make the luck of a lone request a result."""
    seeds = [frame.sampling.seed for repeat in range(9) for frame in frames_of(load_of(LOAD, 1, repeat), 100)]
    assert len(set(seeds)) == len(seeds) == 9 * LOAD.concurrency
