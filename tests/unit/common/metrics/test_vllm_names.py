"""vLLM's names hold what ours do."""

import urllib.request

from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_of
from prometheus_client.parser import text_string_to_metric_families as plain_of

from services.common.metrics.catalogue import GatewayMetrics, TargetMetrics, every_metric
from services.common.metrics.exporter import Exporter
from services.common.metrics.vllm_names import BLOCKS, NAMES
from tests.support.cases import each

PROMETHEUS = {
    "none": "",
    "anything": "*/*",
    "2": "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    "3": "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,*/*;q=0.2",
    "3 with old names": "application/openmetrics-text;version=1.0.0;escaping=underscores;q=0.6,*/*;q=0.2",
    "3, text": "text/plain;version=1.0.0;escaping=underscores;q=0.6,*/*;q=0.2",
    "histograms": "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6",
    "dots": "application/openmetrics-text; version=1.0.0; escaping=dots",
    "no number": "application/openmetrics-text;version=latest",
    "no form": ";;,q=,text",
}
"""What asks for metrics says it takes."""


def page(registry: CollectorRegistry, accept: str = "", path: str = "/metrics/vllm") -> str:
    exporter = Exporter(registry, "127.0.0.1", 0)
    asked = urllib.request.Request(f"http://{exporter.address}{path}", headers={"Accept": accept} if accept else {})
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return str(answer.read().decode())
    finally:
        exporter.close()


@each("name", PROMETHEUS)
def test_names_are_the_same_whatever_form_is_asked_for(name: str) -> None:
    """And labels are what they were, whatever a model is called."""
    registry, model = CollectorRegistry(), 'it"s: {x="y"}\\ é\n模'
    GatewayMetrics(registry, model).inter_token_seconds.observe_each(0.02, 5)
    for path, told in (("/metrics", "paceline_"), ("/metrics/vllm", "vllm:"), ("/metrics/vllm/", "vllm:")):
        text = page(registry, PROMETHEUS[name], path)
        read = openmetrics_of if text.endswith("# EOF\n") else plain_of
        every = [sample for family in read(text) for sample in family.samples]
        samples = [sample for sample in every if not sample.name.startswith(("process_", "python_"))]
        assert samples and all(sample.name.startswith(told) for sample in samples)
        assert {sample.labels["model_name"] for sample in samples} == {model}


def test_a_target_tells_what_scalers_and_routers_read() -> None:
    registry = CollectorRegistry()
    metrics = TargetMetrics(registry, "m", "pair-0")
    metrics.waiting_requests.set(3)
    metrics.running_requests.set(2)
    metrics.spec_decode_num_accepted_tokens.inc(7)
    for state, blocks in (("free", 1), ("owned", 2), ("cached", 5)):
        metrics.kv_blocks[state].set(blocks)
    text = page(registry)
    for line in (
        'vllm:num_requests_waiting{engine="pair-0",model_name="m"} 3.0',
        'vllm:num_requests_running{engine="pair-0",model_name="m"} 2.0',
        'vllm:spec_decode_num_accepted_tokens_total{engine="pair-0",model_name="m"} 7.0',
        'vllm:kv_cache_usage_perc{engine="pair-0",model_name="m"} 0.25',
    ):
        assert line in text
    assert "paceline_" not in text


def test_a_gateway_tells_what_boards_read() -> None:
    registry = CollectorRegistry()
    GatewayMetrics(registry, "m").inter_token_seconds.observe_each(0.02, 5)
    assert 'vllm:inter_token_latency_seconds_count{engine="",model_name="m"} 5.0' in page(registry)


def test_every_name_stands_for_a_metric_of_the_catalogue() -> None:
    assert {*NAMES, BLOCKS} <= {spec.full_name for spec in every_metric()}
    assert len({*NAMES.values()}) == len(NAMES)
