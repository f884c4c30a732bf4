"""What an endpoint picker of the Gateway API's inference extension finds at a gateway that stands beside its pairs."""

import asyncio
import logging
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from services.common.pb.paceline.v1 import inference_pb2
from tests.integration.gateway_stack import Harness
from tests.integration.http_stack import COMPLETIONS, completion, serving
from tests.integration.test_gateway_stream import until
from tests.support.fakes_target import FakeTarget
from tests.support.http_client import Client

PAGE = "/metrics"


async def page(http: Client) -> dict[str, tuple[float, dict[str, str]]]:
    """Value and labels of every gauge; each has one sample."""
    reply = await http.get(PAGE)
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = {}
    for family in text_string_to_metric_families(reply.body.decode()):
        (sample,) = family.samples
        assert family.type == "gauge"
        found[sample.name] = sample.value, sample.labels
    return found


async def both_ready(one: Harness) -> None:
    """A request that comes before a pair is reached goes to the other one."""
    async with asyncio.timeout(30.0):
        while (await one.stub.GetStatus(inference_pb2.GetStatusRequest())).ready_pairs < 2:
            await asyncio.sleep(0.02)


def fakes() -> list[FakeTarget]:
    """A pair beside the gateway, and one elsewhere."""
    made = [FakeTarget("here-0"), FakeTarget("there-0")]
    for one in made:
        one.waiting, one.free_blocks, one.total_blocks = 3, 30, 120
    made[1].waiting = 50
    return made


async def test_the_page_tells_the_load_of_the_pairs_beside_the_gateway(tmp_path: Path) -> None:
    async with serving(tmp_path, fakes(), own_pairs="here-") as (one, http):
        await both_ready(one)
        await http.post(COMPLETIONS, completion())
        found = await page(http)
        assert set(found) == {
            "vllm:num_requests_waiting",
            "vllm:num_requests_running",
            "vllm:kv_cache_usage_perc",
            "vllm:cache_config_info",
            "vllm:lora_requests_info",
        }
        assert {labels["model_name"] for _, labels in found.values()} == {"fake"}
        assert found["vllm:num_requests_waiting"][0] == 3
        assert found["vllm:kv_cache_usage_perc"][0] == 0.75
        assert found["vllm:cache_config_info"][1]["num_gpu_blocks"] == "120"
        assert found["vllm:lora_requests_info"][1]["running_lora_adapters"] == ""
        assert found["vllm:num_requests_running"][0] == 0
        assert [len(target.starts) for target in one.targets] == [1, 0]


async def test_the_page_has_no_load_before_a_pair_is_there(tmp_path: Path) -> None:
    async with serving(tmp_path, [FakeTarget("there-0")], own_pairs="here-") as (_, http):
        found = await page(http)
        assert [value for value, _ in found.values()][:3] == [0, 0, 0]


async def test_requests_go_on_elsewhere_when_the_pair_beside_the_gateway_leaves(tmp_path: Path) -> None:
    async with serving(tmp_path, fakes(), own_pairs="here-") as (one, http):
        here, there = one.targets
        await both_ready(one)
        await http.post(COMPLETIONS, completion())
        await here.stop()
        reply = await http.post(COMPLETIONS, completion())
        assert reply.status == 200
        assert len(there.starts) == 1
        async with asyncio.timeout(30.0):
            while (await page(http))["vllm:num_requests_running"][0] != 0:
                await asyncio.sleep(0.02)
        assert (await http.get("/health")).status == 200


async def test_no_key_is_needed_and_a_scrape_has_no_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tenants = tmp_path / "tenants.toml"
    tenants.write_text("tenant = []\n")
    caplog.set_level(logging.INFO, logger="services.gateway.access")
    async with serving(tmp_path, fakes(), own_pairs="here-", tenants=str(tenants)) as (_, http):
        await page(http)
        lines = [record.message for record in caplog.records if record.name == "services.gateway.access"]
        assert lines == []
        assert (await http.ask("POST", PAGE)).status == 405
        await until(lambda: any("request refused" in record.message for record in caplog.records))


async def test_without_pairs_of_its_own_a_gateway_has_no_such_page(tmp_path: Path) -> None:
    async with serving(tmp_path, fakes()) as (_, http):
        assert (await http.get(PAGE)).status == 404
