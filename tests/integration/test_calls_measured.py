"""What a collector of OpenTelemetry is told of calls for text."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import generate_latest

from services.common.serving import measures
from tests.integration.test_calls_recorded import Crowd, recording, series


async def test_a_collector_is_told_the_times_of_calls_for_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By OpenTelemetry's names: of each call, of its first token and of those after it, and what went wrong."""
    reader = InMemoryMetricReader()
    monkeypatch.setattr(measures, "measures", lambda service: measures.OtelMeasures(reader, service))
    async with recording(tmp_path, monkeypatch) as (one, client, *_):
        crowd = Crowd(one, client)
        for ask in (crowd.generate, crowd.chat, crowd.several, crowd.http_full, crowd.models, crowd.http_no_key):
            await ask("a")
        text = generate_latest(one.app._server._registry).decode()
        told = reader.get_metrics_data()
    assert told is not None
    (of_process,) = told.resource_metrics
    assert of_process.resource.attributes["service.name"] == "paceline-gateway"
    points: dict[str, list[Any]] = {
        metric.name: list(metric.data.data_points) for scope in of_process.scope_metrics for metric in scope.metrics
    }
    assert points.keys() == {f"gen_ai.server.{name}" for name in (measures.REQUEST, measures.FIRST, measures.EACH)}
    whole = points[f"gen_ai.server.{measures.REQUEST}"]
    assert sum(point.count for point in whole) == series(text, "request_seconds_count")[()]
    failed = Counter(
        {point.attributes["error.type"]: point.count for point in whole if "error.type" in point.attributes}
    )
    assert failed.keys() <= {"TENANT_LIMIT"}
    for name in (measures.FIRST, measures.EACH):
        found = {point.attributes["gen_ai.operation.name"]: point for point in points[f"gen_ai.server.{name}"]}
        assert {operation: point.count for operation, point in found.items()} == {
            "generate_content": 1, "chat": 1, "text_completion": 1,
        }  # fmt: skip
        assert all(point.attributes["gen_ai.request.model"] == "fake" and point.sum > 0.0 for point in found.values())
