"""vLLM's names hold what ours do."""

import urllib.request

from prometheus_client import CollectorRegistry

from services.common.metrics.catalogue import GatewayMetrics, TargetMetrics, every_metric
from services.common.metrics.exporter import Exporter
from services.common.metrics.vllm_names import BLOCKS, NAMES


def page(registry: CollectorRegistry) -> str:
    exporter = Exporter(registry, "127.0.0.1", 0)
    try:
        with urllib.request.urlopen(f"http://{exporter.address}/metrics/vllm", timeout=30) as answer:
            return str(answer.read().decode())
    finally:
        exporter.close()


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
