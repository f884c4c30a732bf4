"""What an endpoint picker of the Gateway API's inference extension reads at /metrics: the load beside this gateway."""

import time
from collections.abc import Callable, Iterable

from prometheus_client import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from services.gateway.http.schema.errors import wrong_method
from services.gateway.http.server.exchange import Exchange
from services.gateway.streams.calls import current_call
from services.gateway.targets.link import Link


class PickerPage(Collector):
    """The model server protocol under vLLM's names, summed over the pairs that belong to this gateway.

    A page is a handful of series, for pickers ask 20 times a second; a client's data is in none of them.
    """

    def __init__(self, links: Callable[[], Iterable[Link]], own: str, model: Callable[[], str]) -> None:
        """`own` is how the ids of those pairs begin; `model` is served while none of them is there."""
        self._links = links
        self._own = own
        self._model = model

    async def __call__(self, exchange: Exchange) -> None:
        """Answers one scrape.

        Raises:
            RefusedError: the method is another one.
        """
        if exchange.method not in ("GET", "HEAD"):
            raise wrong_method("GET, HEAD")
        current_call().routine = True
        await exchange.reply(generate_latest(self), kind=CONTENT_TYPE_PLAIN_0_0_4.encode())

    def collect(self) -> Iterable[Metric]:
        """The gauges that the protocol names; those of adapters say that there are none."""
        own = [link for link in self._links() if link.pair_id.startswith(self._own)]
        present = [link.load for link in own if link.load is not None]
        model = next((link.model.name for link in own if link.model is not None), self._model())
        blocks = sum(load.total_blocks for load in present)
        used = blocks - sum(load.free_blocks for load in present)
        waiting, running = sum(load.waiting for load in present), sum(load.running for load in present)
        yield _gauge("num_requests_waiting", "Requests that wait.", waiting, model)
        yield _gauge("num_requests_running", "Requests that run.", running, model)
        share = used / blocks if blocks else 0.0
        yield _gauge("kv_cache_usage_perc", "Share of K/V blocks in use, 1 for all.", share, model)
        yield _gauge("cache_config_info", "Blocks of K/V in all.", 1.0, model, num_gpu_blocks=str(blocks))
        adapters = {"max_lora": "0", "running_lora_adapters": "", "waiting_lora_adapters": ""}
        yield _gauge("lora_requests_info", "No adapters are served.", time.time(), model, **adapters)


def _gauge(name: str, meaning: str, value: float, model: str, **labels: str) -> Metric:
    made = Metric(f"vllm:{name}", meaning, "gauge")
    made.add_sample(made.name, {"model_name": model, **labels}, value)
    return made
