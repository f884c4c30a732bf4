"""Failures of a whole release of which somebody must hear, and states in which nobody may be woken.

Each state holds everything that alerts read, and the alerts that fire at any time of two hours must be those it names.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.deploy.full.charts import VARIANTS, templates, variant
from tests.deploy.full.prometheus import promtool
from tests.deploy.full.states import (
    BEGIN,
    END,
    GAPS,
    PAIRS,
    STEP_S,
    State,
    asked,
    growing,
    holding,
    level,
    name,
    of,
    paired,
    refused,
    spread,
    steps,
    until,
    well,
)
from tests.deploy.test_drift import ROOT, rules

RULES = ROOT / "deploy/prometheus/rules.yaml"
REST = END - BEGIN
pytestmark = pytest.mark.timeout(600)
Parts = tuple[tuple[float | str, float], ...]
"""Values and the minutes that they last."""


def seen(ready: Parts, known: Parts) -> dict[str, str]:
    """Pairs that take work and pairs that are known, as both gateways see them."""
    gateways = [f'instance="{each}"' for each in ("g0", "g1")]
    return {of("paceline_gateway_ready_targets", each): level(*ready) for each in gateways} | {
        of("paceline_gateway_known_pairs", each): level(*known) for each in gateways
    }


def deployed(deployment: str, wanted: Parts, ready: Parts) -> dict[str, str]:
    """What kube-state-metrics tells of a Deployment."""
    label = f'deployment="{deployment}"'
    return {
        name("kube_deployment_spec_replicas", label): level(*wanted),
        name("kube_deployment_status_replicas_ready", label): level(*ready),
    }


def asks(code: str, before: float, after: float) -> dict[str, str]:
    """So many requests a minute at each gateway end so."""
    return {asked(code, f'instance="{each}"'): growing((before, BEGIN), (after, REST)) for each in ("g0", "g1")}


def quiet() -> dict[str, str]:
    """Nobody asks from `BEGIN` on."""
    found = asks("OK", 60, 0)
    for each in ("num_drafts", "num_draft_tokens", "num_accepted_tokens"):
        for pair in PAIRS:
            found[of(f"paceline_spec_decode_{each}_total", f'instance="{pair}"', f'pair="{pair}"')] = growing(
                (18e3, BEGIN), (0, REST)
            )
    return found


def pair_states(pair: str, *, ready: Parts, **others: Parts) -> dict[str, str]:
    """How a controller sees its pair."""
    labels = f'pair="{pair}"'
    return {paired(labels, state): level(*parts) for state, parts in {"ready": ready, **others}.items()}


def later(pair: str, new: str, leaves: float, comes: float) -> dict[str, str]:
    """Everything of a pair ends, and that of its successor begins, at an address of its own."""
    old = [*holding(f'pair="{pair}"'), name("process_start_time_seconds", f'instance="{pair}"')]
    ended = until(old, leaves)
    begun = {
        each.replace(f'"{pair}"', f'"{new}"'): f"_x{steps(comes)} {values.split()[0]}"
        for each, values in until(old, END).items()
    }
    return ended | begun


def per_pair(metric: str, pair: str, *labels: str) -> str:
    return of(metric, f'instance="{pair}"', f'pair="{pair}"', *labels)


def pod(metric: str, component: str, of_pod: str) -> str:
    return name(metric, f'pod="llm-{component}-{of_pod}"', f'container="{component}"')


COUNTED = "kube_pod_container_status_restarts_total"
EVERY_FIVE: list[tuple[float, float]] = [(0, BEGIN), *((n, 5) for n in range(1, 8)), (8, END)]
DOWN = {"ready": ((1, BEGIN), (0, REST)), "down": ((0, BEGIN), (1, REST))}
LOST = quiet() | asks("UNAVAILABLE", 0, 60) | {k: v for each in PAIRS for k, v in pair_states(each, **DOWN).items()}
TWO, NONE = ((2, END),), ((0, END),)
EVERY_TWO: list[tuple[float, float]] = [(0, BEGIN), *((60 * (BEGIN + 2 * n), 2) for n in range(8)), (9000, END)]

FAILURES = [
    State(
        "one of two workers crash-loops before it is scraped",
        until(holding('"p1"'), BEGIN)
        | seen(((2, BEGIN), (1, REST)), ((2, BEGIN), (1, REST)))
        | deployed("llm-worker", TWO, ((2, BEGIN), (1, REST)))
        | {pod(COUNTED, "worker", "p1"): level(*EVERY_FIVE)},
        frozenset({"PacelineCrashLoop", "PacelineFewerThanWanted"}),
    ),
    State(
        "one of two gateways crash-loops",
        until(holding('"g1"'), BEGIN)
        | deployed("llm-gateway", TWO, ((2, BEGIN), (1, REST)))
        | {pod(COUNTED, "gateway", "g1"): level(*EVERY_FIVE)},
        frozenset({"PacelineCrashLoop", "PacelineFewerThanWanted"}),
    ),
    State(
        "nobody counts pods, and a worker restarts every two minutes",
        {name("process_start_time_seconds", 'instance="p0"'): level(*EVERY_TWO)}
        | {each: "" for each in well() if each.startswith("kube_")},
        frozenset({"PacelineCrashLoop"}),
    ),
    State(
        "the pods of a further model are never scheduled",
        deployed("llm-worker-n", (("_", BEGIN), (2, REST)), (("_", BEGIN), (0, REST))),
        frozenset({"PacelineFewerThanWanted"}),
    ),
    State(
        "half of the pods are never scheduled",
        deployed("llm-worker", ((4, END),), TWO),
        frozenset({"PacelineFewerThanWanted"}),
    ),
    State("traffic ends", quiet(), frozenset({"PacelineTrafficVanished"})),
    State(
        "a target is killed for want of memory",
        {
            pod("container_oom_events_total", "worker", "p0"): level((0, BEGIN), (1, REST)),
            of("paceline_cluster_restarts_total", 'pair="p0"', 'service="target"'): level((0, BEGIN), (1, REST)),
        },
        frozenset({"PacelineOutOfMemory"}),
    ),
    State("a key was rotated", asks("UNAUTHENTICATED", 0, 30), frozenset({"PacelineKeysRefused"})),
    State(
        "one token in ten takes a second",
        {
            each: values
            for instance in ('instance="g0"', 'instance="g1"')
            for each, values in spread(
                "inter_token", GAPS, instance, 9000, {**GAPS, "0.02": 0.8, "0.05": 0.9, "0.5": 0.9}
            ).items()
        },
        frozenset({"PacelineTokenGaps"}),
    ),
    State(
        "no gateway is left",
        until(holding('instance="g'), BEGIN) | deployed("llm-gateway", TWO, ((2, BEGIN), (0, REST))),
        frozenset({"PacelineGatewaysAbsent", "PacelineFewerThanWanted"}),
    ),
    State(
        "no pair takes work",
        LOST | seen(((2, BEGIN), (0, REST)), TWO),
        frozenset(
            {
                "PacelineNoReadyPair",
                "PacelineColdStartLong",
                "PacelinePairNotReady",
                "PacelineErrorBudgetBurn",
                "PacelineErrorBudgetSlowBurn",
            }
        ),
    ),
    State(
        "every request misses its deadline",
        asks("OK", 60, 0) | asks("DEADLINE_EXCEEDED", 0, 60),
        frozenset({"PacelineDeadlineMisses"}),
    ),
    State(
        "a target restarts every two minutes",
        {
            of("paceline_cluster_restarts_total", 'pair="p0"', 'service="target"'): level(
                (0, BEGIN), *((n, 2) for n in range(1, 9)), (9, END)
            ),
            per_pair("paceline_drafter_attaches_total", "p0"): level((1, END)),
            name("process_start_time_seconds", 'instance="p0"'): level(*EVERY_TWO),
        },
        frozenset({"PacelineTargetRestarts", "PacelineCrashLoop"}),
    ),
    State(
        "a pair would be quicker without drafts",
        {per_pair("paceline_plain_equivalent_seconds_total", "p1"): growing((60, BEGIN), (36, REST))},
        frozenset({"PacelineSpeculationLoses"}),
    ),
    State(
        "one gateway reaches no pair",
        {of("paceline_gateway_ready_targets", 'instance="g1"'): level((2, BEGIN), (0, REST))},
        frozenset({"PacelineGatewayBlind", "PacelinePairUnreachable"}),
    ),
    State(
        "an engine hangs",
        {per_pair("paceline_engine_stuck", "p0"): level((0, BEGIN), (1, 3), (0, REST))},
        frozenset({"PacelineEngineStuck"}),
    ),
    State(
        "a drafter does not come back",
        {per_pair("paceline_drafter_attached", "p0"): level((1, BEGIN), (0, REST))},
        frozenset({"PacelinePairDegraded"}),
    ),
    State(
        "one pair of two stays down",
        pair_states("p1", **DOWN)
        | {per_pair("paceline_ready", "p1"): level((1, BEGIN), (0, REST))}
        | seen(((2, BEGIN), (1, REST)), TWO),
        frozenset({"PacelinePairNotReady"}),
    ),
    State(
        "a model that was scaled to zero refuses who wakes it",
        quiet()
        | until(holding('"p0"') + holding('"p1"'), BEGIN)
        | seen(((2, BEGIN), (0, REST)), ((2, BEGIN), (0, REST)))
        | deployed("llm-worker", ((2, BEGIN), (0, 60), (1, REST)), ((2, BEGIN), (0, REST)))
        | {refused("NO_TARGET", 'instance="g0"'): growing((0, BEGIN + 60), (4, REST - 60))},
        frozenset(
            {"PacelineTrafficVanished", "PacelineNoReadyPair", "PacelineFewerThanWanted", "PacelineColdStartLong"}
        ),
    ),
]

UNKNOWN = "paceline_gateway_ready_targets"
COLD = {
    name(UNKNOWN, 'model_name="unknown"', 'instance="g0"'): level((0, 30), ("_", 1)) + " stale",
    of(UNKNOWN, 'instance="g0"'): level(("_", 30), (2, END)),
    of(UNKNOWN, 'instance="g1"'): level(("_", 30), (2, END)),
} | {
    k: v
    for each in PAIRS
    for k, v in pair_states(each, ready=((0, 14), (1, END)), starting=((1, 14), (0, END))).items()
}  # fmt: skip

SILENCE = [
    State("all is well"),
    State(
        "a cold start of half an hour",
        COLD
        | {per_pair("paceline_ready", each): level(("_", 14), (1, END)) for each in PAIRS}
        | {asked("OK", f'instance="{each}"'): growing((0, 30), (60, END)) for each in ("g0", "g1")}
        | deployed("llm-worker", TWO, ((0, 30), (2, END)))
        | deployed("llm-gateway", TWO, ((0, 30), (2, END))),
    ),
    State(
        "a rollout of gateways, then of workers that start for ten minutes",
        later("p0", "p2", BEGIN + 5, BEGIN + 15)
        | later("p1", "p3", BEGIN + 16, BEGIN + 26)
        | {
            each.replace('"g0"', '"g2"').replace('"g1"', '"g3"'): f"_x{steps(comes)} {values.split()[0]}"
            for comes, gateway in ((BEGIN + 1, '"g0"'), (BEGIN + 3, '"g1"'))
            for each, values in until(holding(gateway), END).items()
        }
        | until(holding('"g0"'), BEGIN + 2)
        | until(holding('"g1"'), BEGIN + 4)
        | deployed("llm-worker", TWO, ((2, BEGIN + 5), (1, 21), (2, END))),
    ),
    State(
        "a node is drained",
        later("p1", "p2", BEGIN, BEGIN + 10)
        | seen(((2, BEGIN), (1, 10), (2, REST)), ((2, BEGIN), (1, 8), (2, REST)))
        | deployed("llm-worker", TWO, ((2, BEGIN), (1, 10), (2, REST))),
    ),
    State(
        "a quiet night",
        {asked("OK", f'instance="{each}"'): growing((60, BEGIN), (2, 60), (0.5, 60)) for each in ("g0", "g1")},
    ),
    State(
        "workers are scaled to zero in a quiet hour, and one wakes in five minutes",
        {asked("OK", f'instance="{each}"'): growing((0.5, END)) for each in ("g0", "g1")}
        | until(holding('"p1"'), BEGIN)
        | later("p0", "p2", BEGIN, BEGIN + 75)
        | seen(((2, BEGIN), (0, 75), (1, REST)), ((2, BEGIN), (0, 71), (1, REST)))
        | deployed("llm-worker", ((2, BEGIN), (0, 70), (1, REST)), ((2, BEGIN), (0, 75), (1, REST))),
    ),
    State(
        "another release is installed beside it",
        {name(UNKNOWN, 'model_name="unknown"', 'instance="x0"'): level(("_", BEGIN), (0, 20)) + " stale"}
        | {name(UNKNOWN, 'model_name="n"', 'instance="x0"'): level(("_", BEGIN + 20), (1, REST))}
        | deployed("other-worker", (("_", BEGIN), (1, REST)), (("_", BEGIN), (0, 20), (1, REST))),
    ),
    State(
        "a further model is loaded behind the same gateways",
        {name(UNKNOWN, 'model_name="n"', 'instance="g0"'): level(("_", BEGIN), (0, 20), (1, REST))}
        | deployed("llm-worker-n", (("_", BEGIN), (1, REST)), (("_", BEGIN), (0, 20), (1, REST))),
    ),
    State("clients leave and ask for models that are not there", asks("CANCELLED", 0, 60) | asks("NOT_FOUND", 0, 60)),
    State(
        "there are twice as many workers, which start for ten minutes",
        deployed("llm-worker", ((2, BEGIN), (4, REST)), ((2, BEGIN + 10), (4, REST))),
    ),
]


def judged(state: State, file: Path) -> set[str]:
    """Alerts that fired at any time: what promtool says of a file in which nothing should fire."""
    fired = f'count by (alertname) (count_over_time(ALERTS{{alertstate="firing"}}[{END}m]))'
    test = {
        "interval": f"{STEP_S}s",
        "input_series": [{"series": each, "values": values} for each, values in state.series().items()],
        "promql_expr_test": [{"expr": fired, "eval_time": f"{END - 1}m", "exp_samples": []}],
    }
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}))
    done = promtool("test", "rules", file)
    found = set(re.findall(r'alertname="(\w+)"', done.stderr))
    assert found or done.returncode == 0, done.stdout + done.stderr
    return found


@pytest.mark.parametrize("state", FAILURES, ids=lambda state: state.says)
def test_a_failure_is_told_and_nothing_else(state: State, tmp_path: Path) -> None:
    assert judged(state, tmp_path / "state.test.yaml") == set(state.fires)


@pytest.mark.parametrize("state", SILENCE, ids=lambda state: state.says)
def test_nobody_is_woken_for_what_is_no_failure(state: State, tmp_path: Path) -> None:
    assert judged(state, tmp_path / "state.test.yaml") == set()


@pytest.mark.parametrize(
    ("label", "found"),
    [
        ("deployment", lambda documents: [d["metadata"]["name"] for d in documents if d["kind"] == "Deployment"]),
        ("container", lambda documents: [c["name"] for t in templates(documents) for c in t["spec"]["containers"]]),
    ],
    ids=["deployments", "containers"],
)
def test_rules_know_what_the_chart_makes(label: str, found: object) -> None:
    """By the names that kube-state-metrics and the kubelet tell."""
    patterns = {m for rule in rules() for m in re.findall(rf'\b{label}=~"([^"]+)"', rule["expr"])}
    whole = [each for each in patterns if "gateway" in each]
    assert whole
    for each in VARIANTS:
        for made in found(variant(each)):  # type: ignore[operator]
            assert all(re.fullmatch(pattern, made) for pattern in whole), made
