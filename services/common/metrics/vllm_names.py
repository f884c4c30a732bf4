"""The same series under vLLM's names, for scalers, routers and boards that read those: served at /metrics/vllm."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.samples import Sample

NAMES = {
    "paceline_running_requests": "num_requests_running",
    "paceline_waiting_requests": "num_requests_waiting",
    "paceline_prompt_tokens": "prefix_cache_queries",
    "paceline_cached_prompt_tokens": "prefix_cache_hits",
    "paceline_preemptions": "num_preemptions",
    "paceline_spec_decode_num_drafts": "spec_decode_num_drafts",
    "paceline_spec_decode_num_draft_tokens": "spec_decode_num_draft_tokens",
    "paceline_spec_decode_num_accepted_tokens": "spec_decode_num_accepted_tokens",
    "paceline_spec_decode_num_accepted_tokens_per_pos": "spec_decode_num_accepted_tokens_per_pos",
    "paceline_queue_seconds": "request_queue_time_seconds",
    "paceline_prefill_seconds": "request_prefill_time_seconds",
    "paceline_gateway_prompt_tokens": "prompt_tokens",
    "paceline_gateway_generation_tokens": "generation_tokens",
    "paceline_time_to_first_token_seconds": "time_to_first_token_seconds",
    "paceline_inter_token_seconds": "inter_token_latency_seconds",
    "paceline_request_seconds": "e2e_request_latency_seconds",
    "paceline_request_prompt_length": "request_prompt_tokens",
    "paceline_request_generation_length": "request_generation_tokens",
}
"""Of each family that means what vLLM's does; targets have the first ones, gateways the others."""

BLOCKS, USAGE = "paceline_kv_blocks", "kv_cache_usage_perc"


class VllmNames:
    """Reads a registry under vLLM's names; `engine` is the pair."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Takes what to read."""
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        """Every family that vLLM has a name for."""
        for family in self._registry.collect():
            if family.name == BLOCKS:
                yield _usage(family)
            elif name := NAMES.get(family.name):
                yield _renamed(family, f"vllm:{name}")


def _renamed(family: Metric, name: str) -> Metric:
    made = Metric(name, family.documentation, family.type)
    made.samples = [
        Sample(sample.name.replace(family.name, name, 1), _labels(sample.labels), sample.value)
        for sample in family.samples
    ]
    return made


def _usage(family: Metric) -> Metric:
    """The share of blocks that running requests own, 1 for all."""
    made = Metric(f"vllm:{USAGE}", "Share of K/V blocks in use.", "gauge")
    total = sum(sample.value for sample in family.samples)
    for sample in family.samples:
        if sample.labels["state"] == "owned":
            labels = {name: value for name, value in sample.labels.items() if name != "state"}
            made.samples.append(Sample(made.name, _labels(labels), sample.value / total if total else 0.0))
    return made


def _labels(labels: dict[str, str]) -> dict[str, str]:
    return {("engine" if name == "pair" else name): value for name, value in labels.items()}
