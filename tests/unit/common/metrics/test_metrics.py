"""The catalogue of metrics: one page, bounded labels, the names the field knows (I10)."""

import ast
import random
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import assert_type, get_args

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from deploy.cluster.registry import State
from services.common.metrics.catalogue import (
    ATTACH_REFUSALS,
    DISCARDS,
    ENDS,
    EXACT_STATES,
    FALLBACKS,
    HANDOFFS,
    HANDOFFS_WANTED,
    PAIR_STATES,
    REJECTS,
    STATUSES,
    DrafterMetrics,
    GatewayMetrics,
    PairMetrics,
    ServiceMetrics,
    TargetMetrics,
    every_metric,
)
from services.common.metrics.declare import ByLabel
from services.common.metrics.histogram import Histogram
from services.common.metrics.named import NamedRegistry
from services.common.metrics.page import page, scraped_name
from services.common.metrics.version import VERSION
from services.common.pair.handoff import HandoffMode
from services.common.request.errors import Code, Reason
from services.common.request.sampling import FinishReason
from services.target.core.drafts import NoDrafts
from services.target.device.exact.check import ExactMode, Exactness
from services.target.drafting.attachment import LATE, LOST
from services.target.engine.ledger import DISCARD_REASONS
from tests.support.metrics import value_of

ROOT = Path(__file__).resolve().parents[4]
EVERY = every_metric()
# What a label may hold: each has few values, none of which a client chooses.
BOUNDED = {
    "position",
    "row",
    "child",
    "reason",
    "finish_reason",
    "width",
    "mode",
    "dtype",
    "state",
    "memory",
    "code",
    "cause",
    "file",
    "version",
    "service",
    "digest",
    "endpoint",
    "tenant",
}


def target() -> tuple[CollectorRegistry, TargetMetrics]:
    registry = CollectorRegistry()
    return registry, TargetMetrics(registry, "m", "p")


def test_the_page_is_current() -> None:
    text = (ROOT / "docs/metrics.md").read_text()
    assert text == page(), "run `python -m services.common.metrics.page > docs/metrics.md`"


def test_names_are_unique_and_plain() -> None:
    names = [spec.name for spec in EVERY]
    assert len(names) == len(set(names))
    assert all(name.replace("_", "").isalnum() and name == name.lower() for name in names)
    assert all(not spec.name.endswith("_total") for spec in EVERY)
    assert all(spec.name.endswith(("_seconds", "_length")) for spec in EVERY if spec.kind == "histogram")


def test_labels_are_bounded() -> None:
    assert {label for spec in EVERY for label in spec.labels} <= BOUNDED


def test_the_four_counters_of_speculation_have_the_names_the_field_uses() -> None:
    registry, metrics = target()
    metrics.spec_decode_num_accepted_tokens_per_pos["0"].inc()
    text = generate_latest(registry).decode()
    for name in ("drafts", "draft_tokens", "accepted_tokens"):
        assert f'paceline_spec_decode_num_{name}_total{{model_name="m",pair="p"}} 0.0' in text
    wanted = 'paceline_spec_decode_num_accepted_tokens_per_pos_total{model_name="m",pair="p",position="0"} 1.0'
    assert wanted in text


def test_counters_without_labels_exist_before_they_count() -> None:
    registry, _ = target()
    text = generate_latest(registry).decode()
    silent = [
        s.name for s in (*TargetMetrics.declared(), *ServiceMetrics.declared()) if s.kind == "counter" and not s.labels
    ]
    assert silent
    assert all(f"paceline_{name}_total{{" in text for name in silent)


def test_known_label_values_exist_before_they_count() -> None:
    registries = [CollectorRegistry() for _ in range(4)]
    TargetMetrics(registries[0], "m", "p")
    DrafterMetrics(registries[1], "m", "p")
    GatewayMetrics(registries[2], "m")
    PairMetrics.each(registries[3], "m", ["p"])
    ServiceMetrics(registries[3], "m")
    text = "".join(generate_latest(registry).decode() for registry in registries)
    known = [(spec, value) for spec in EVERY for value in spec.values]
    assert len(known) >= 40
    for spec, value in known:
        values = value if isinstance(value, tuple) else (value,)
        own = ".*".join(f'{label}="{one}"' for label, one in sorted(zip(spec.labels, values, strict=True)))
        assert re.search(rf"^{scraped_name(spec)}\{{.*{own}.*\}} 0.0$", text, re.MULTILINE)


def test_known_label_values_are_those_that_the_services_use() -> None:
    assert set(FinishReason) | {"moved"} == set(ENDS)
    assert set(REJECTS) | set(ATTACH_REFUSALS) <= set(Reason)
    assert set(STATUSES) <= {code.name for code in Code}
    assert DISCARDS == DISCARD_REASONS
    assert tuple(Exactness(mode=ExactMode.OFF).counts) == EXACT_STATES
    assert get_args(State) == PAIR_STATES
    assert {LATE, LOST, NoDrafts().fallback} < set(FALLBACKS)
    assert tuple(HandoffMode) == HANDOFFS_WANTED
    assert {mode.in_use(shared) for mode in HandoffMode for shared in ("timeslice", "mps")} == set(HANDOFFS)


def test_histograms_resolve_below_a_millisecond_or_a_token() -> None:
    for spec in EVERY:
        if spec.kind == "histogram":
            assert min(spec.buckets) <= (0.0005 if spec.name.endswith("_seconds") else 1)


def test_several_equal_observations_at_once_are_as_many_one_by_one() -> None:
    at_once, singly = (GatewayMetrics(CollectorRegistry(), "m").inter_token_seconds for _ in range(2))
    draw = random.Random(7)
    for _ in range(300):
        amount, times = draw.choice([0.0, 0.0005, 60.0, 61.0, draw.expovariate(20)]), draw.randrange(9)
        at_once.observe_each(amount, times)
        for _ in range(times):
            singly.observe(amount)
    (told,), (wanted,) = at_once.collect(), singly.collect()
    for mine, other in zip(told.samples, wanted.samples, strict=True):
        assert (mine.name, mine.labels) == (other.name, other.labels)
        assert mine.value == pytest.approx(other.value)


def test_no_series_tells_when_another_was_made() -> None:
    registry, _ = target()
    assert "_created" not in generate_latest(registry).decode()


def test_a_model_that_is_not_known_yet_gets_its_name_when_it_is() -> None:
    known = [""]
    registry = NamedRegistry(lambda: known[0])
    metrics = GatewayMetrics(registry, "")
    metrics.gateway_slow_clients.inc()
    for name, wanted in (("", "unknown"), ("m", "m")):
        known[0] = name
        text = generate_latest(registry).decode()
        assert f'paceline_gateway_slow_clients_total{{model_name="{wanted}",pair=""}} 1.0' in text
        assert 'model_name=""' not in text


def test_a_handle_is_a_metric_of_the_client_library_and_mypy_knows_which() -> None:
    _, metrics = target()
    assert_type(metrics.errors, Counter)
    assert_type(metrics.rounds, ByLabel[Counter])
    assert_type(metrics.kv_blocks, ByLabel[Gauge])
    assert_type(metrics.round_seconds, Histogram)
    metrics.rounds[8].inc(3)
    metrics.ready.set(1)
    metrics.round_seconds.observe(0.002)
    assert (value_of(metrics.rounds[8]), value_of(metrics.ready)) == (3, 1)
    with pytest.raises(AttributeError):
        _ = metrics.no_such_metric  # type: ignore[attr-defined]


def test_a_handle_is_bound_once() -> None:
    _, metrics = target()
    assert vars(metrics)["errors"] is metrics.errors
    assert metrics.rounds[8] is metrics.rounds[8]
    assert set(vars(metrics)) == {one.name for one in (*TargetMetrics.declared(), *ServiceMetrics.declared())}


def test_each_service_has_its_own_and_the_common_ones() -> None:
    drafter = DrafterMetrics(CollectorRegistry(), "m", "p")
    gateway = GatewayMetrics(CollectorRegistry(), "m")
    drafter.drafter_rounds.inc()
    gateway.gateway_delivered_tokens.inc(4)
    for metrics in (drafter, gateway):
        assert value_of(metrics.build_info[VERSION]) == 1
    assert value_of(gateway.gateway_delivered_tokens) == 4


MAKERS: dict[str, Callable[[CollectorRegistry], object]] = {
    "target": lambda registry: TargetMetrics(registry, "m", "p"),
    "drafter": lambda registry: DrafterMetrics(registry, "m", "p"),
    "gateway": lambda registry: GatewayMetrics(registry, "m"),
    "controller": lambda registry: ServiceMetrics(registry, "m"),
}


@pytest.mark.parametrize("service", MAKERS)
def test_every_service_tells_of_its_process_and_its_python(service: str) -> None:
    registry = CollectorRegistry()
    MAKERS[service](registry)
    text = generate_latest(registry).decode()
    for name in (
        "process_resident_memory_bytes",
        "process_cpu_seconds_total",
        "python_info",
        "python_gc_collections_total",
    ):
        assert re.search(rf"^{name}(\{{.*\}})? [0-9.e+]+$", text, re.MULTILINE), name


def test_pairs_of_a_controller_share_its_metrics_and_nothing_else() -> None:
    registry = CollectorRegistry()
    pairs = PairMetrics.each(registry, "m", ["p-0", "p-1"])
    pairs["p-1"].cluster_placements.inc()
    text = generate_latest(registry).decode()
    assert 'paceline_cluster_placements_total{model_name="m",pair="p-0"} 0.0' in text
    assert 'paceline_cluster_placements_total{model_name="m",pair="p-1"} 1.0' in text


def test_the_version_is_that_of_the_project() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == VERSION


def sources() -> dict[Path, str]:
    """The product's code that may count something."""
    files = [*(ROOT / "services").rglob("*.py"), *(ROOT / "deploy").rglob("*.py")]
    return {path: path.read_text() for path in files if path.name != "catalogue.py"}


def test_every_metric_is_used() -> None:
    text = "\n".join(sources().values())
    unused = [spec.name for spec in EVERY if not re.search(rf"etrics\.{spec.name}\b", text)]
    assert unused == ["build_info"], "the catalogue itself sets build_info, everything else is set where it happens"


def strings_in_look_ups(source: str) -> list[str]:
    """Look-ups of a metric, or of a value of its label, by a string that stands there."""
    names = {"metrics", "_metrics", *(spec.name for spec in EVERY)}
    return [
        ast.unparse(node)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, str)
        if ast.unparse(node.value).rpartition(".")[2] in names
    ]


def test_no_metric_is_looked_up_by_a_string() -> None:
    planted = 'self._metrics["rounds"].inc(); metrics.kv_blocks["free"].set(1)'
    assert len(strings_in_look_ups(planted)) == 2
    assert not {path: found for path, text in sources().items() if (found := strings_in_look_ups(text))}
