"""The catalogue of metrics: one page, bounded labels, the names the field knows (I10)."""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from deploy.cluster.registry import State
from services.common.metrics.catalogue import (
    ATTACH_REFUSALS,
    CLUSTER,
    DISCARDS,
    DRAFTER,
    ENDS,
    EVERY_SERVICE,
    FALLBACKS,
    GATEWAY,
    PAIR_STATES,
    REJECTS,
    STATUSES,
    TARGET,
    cluster_metrics,
    drafter_metrics,
    gateway_metrics,
    target_metrics,
)
from services.common.metrics.family import Family
from services.common.metrics.page import page, scraped_name
from services.common.metrics.version import VERSION
from services.common.request.errors import Code, Reason
from services.common.request.sampling import FinishReason
from services.target.core.drafts import NoDrafts
from services.target.drafting.attachment import LATE, LOST
from services.target.engine.ledger import DISCARD_REASONS

ROOT = Path(__file__).resolve().parents[4]
EVERY = (*TARGET, *DRAFTER, *GATEWAY, *CLUSTER, *EVERY_SERVICE)
# What a label may hold: each has few values, none of which a client chooses.
BOUNDED = {
    "position",
    "reason",
    "finish_reason",
    "width",
    "mode",
    "state",
    "code",
    "cause",
    "file",
    "version",
    "service",
}


def target() -> tuple[CollectorRegistry, Family]:
    registry = CollectorRegistry()
    return registry, target_metrics(registry, "m", "p")


def test_the_page_is_current() -> None:
    text = (ROOT / "docs/metrics.md").read_text()
    assert text == page(), "run `python -m services.common.metrics.page > docs/metrics.md`"


def test_names_are_unique_and_plain() -> None:
    names = [spec.name for spec in EVERY]
    assert len(names) == len(set(names))
    assert all(name.replace("_", "").isalnum() and name == name.lower() for name in names)
    assert all(not spec.name.endswith("_total") for spec in EVERY)
    assert all(spec.name.endswith("_seconds") for spec in EVERY if spec.kind == "histogram")


def test_labels_are_bounded() -> None:
    assert {label for spec in EVERY for label in spec.labels} <= BOUNDED


def test_the_four_counters_of_speculation_have_the_names_the_field_uses() -> None:
    registry, metrics = target()
    metrics["spec_decode_num_accepted_tokens_per_pos"].inc("0")
    text = generate_latest(registry).decode()
    for name in ("drafts", "draft_tokens", "accepted_tokens"):
        assert f'paceline_spec_decode_num_{name}_total{{model_name="m",pair="p"}} 0.0' in text
    wanted = 'paceline_spec_decode_num_accepted_tokens_per_pos_total{model_name="m",pair="p",position="0"} 1.0'
    assert wanted in text


def test_counters_without_labels_exist_before_they_count() -> None:
    registry, _ = target()
    text = generate_latest(registry).decode()
    silent = [s.name for s in (*TARGET, *EVERY_SERVICE) if s.kind == "counter" and not s.labels]
    assert silent
    assert all(f"paceline_{name}_total{{" in text for name in silent)


def test_known_label_values_exist_before_they_count() -> None:
    registries = [CollectorRegistry() for _ in range(4)]
    target_metrics(registries[0], "m", "p")
    drafter_metrics(registries[1], "m", "p")
    gateway_metrics(registries[2], "m")
    cluster_metrics(registries[3], "m", ["p"])
    text = "".join(generate_latest(registry).decode() for registry in registries)
    known = [(spec, value) for spec in EVERY for value in spec.values]
    assert len(known) >= 40
    for spec, value in known:
        assert len(spec.labels) == 1
        assert re.search(rf'^{scraped_name(spec)}\{{.*{spec.labels[0]}="{value}".*\}} 0.0$', text, re.MULTILINE)


def test_known_label_values_are_those_that_the_services_use() -> None:
    assert set(FinishReason) | {"moved"} == set(ENDS)
    assert set(REJECTS) | set(ATTACH_REFUSALS) <= set(Reason)
    assert set(STATUSES) <= {code.name for code in Code}
    assert DISCARDS == DISCARD_REASONS
    assert get_args(State) == PAIR_STATES
    assert {LATE, LOST, NoDrafts().fallback} < set(FALLBACKS)


def test_histograms_resolve_below_a_millisecond() -> None:
    assert all(min(spec.buckets) <= 0.0005 for spec in EVERY if spec.kind == "histogram")


def test_counters_gauges_and_histograms_take_only_their_own_verbs() -> None:
    _, metrics = target()
    metrics["rounds"].inc("8", by=3)
    metrics["ready"].set(1)
    metrics["round_seconds"].observe(0.002)
    assert (metrics["rounds"].value("8"), metrics["ready"].value()) == (3, 1)
    with pytest.raises(TypeError):
        metrics["rounds"].observe(1.0, "8")
    with pytest.raises(TypeError):
        metrics["rounds"].set(1.0, "8")
    with pytest.raises(TypeError):
        metrics["round_seconds"].inc()
    with pytest.raises(TypeError):
        metrics["round_seconds"].value()
    with pytest.raises(KeyError):
        metrics["no_such_metric"]


def test_each_service_has_its_own_and_the_common_ones() -> None:
    drafter = drafter_metrics(CollectorRegistry(), "m", "p")
    gateway = gateway_metrics(CollectorRegistry(), "m")
    drafter["drafter_rounds"].inc()
    gateway["gateway_delivered_tokens"].inc(by=4)
    for family in (drafter, gateway):
        assert family["build_info"].value(VERSION) == 1
    assert gateway["gateway_delivered_tokens"].value() == 4


MAKERS: dict[str, Callable[[CollectorRegistry], object]] = {
    "target": lambda registry: target_metrics(registry, "m", "p"),
    "drafter": lambda registry: drafter_metrics(registry, "m", "p"),
    "gateway": lambda registry: gateway_metrics(registry, "m"),
    "controller": lambda registry: cluster_metrics(registry, "m", ["p"]),
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
    own, pairs = cluster_metrics(registry, "m", ["p-0", "p-1"])
    pairs["p-1"]["cluster_placements"].inc()
    text = generate_latest(registry).decode()
    assert 'paceline_cluster_placements_total{model_name="m",pair="p-0"} 0.0' in text
    assert 'paceline_cluster_placements_total{model_name="m",pair="p-1"} 1.0' in text
    assert own["build_info"].value(VERSION) == 1


def test_the_version_is_that_of_the_project() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == VERSION


def test_every_metric_is_used() -> None:
    files = [*(ROOT / "services").rglob("*.py"), *(ROOT / "deploy/cluster").rglob("*.py")]
    sources = [path.read_text() for path in files if "catalogue" not in path.name]
    unused = [spec.name for spec in EVERY if not any(f'"{spec.name}"' in text for text in sources)]
    assert unused == ["build_info"], "the catalogue itself sets build_info, everything else is set where it happens"
