"""What a target is asked where a request leaves its sampling out: as recommended over HTTP, greedy over gRPC."""

import json
from pathlib import Path

import pytest

from tests.integration.gateway_stack import ask_for
from tests.integration.http_stack import CHAT, COMPLETIONS, chat, completion, serving
from tests.support.fakes_target import FakeTarget


@pytest.mark.parametrize(("setting", "expected"), [("auto", (0.5, 20)), ("none", (1.0, 0)), ("vllm", (1.0, 0))])
async def test_requests_without_sampling(setting: str, expected: tuple[float, int], tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps({"temperature": 0.5, "top_k": 20, "do_sample": False}))
    target = FakeTarget()
    async with serving(tmp_path, [target], generation_config=setting) as (one, http):
        for path, body in ((CHAT, chat()), (COMPLETIONS, completion())):
            assert (await http.post(path, body)).status == 200
            assert (await http.post(path, body | {"temperature": 0.25, "top_k": 3})).status == 200
        await one.ask(ask_for("hello", max_tokens=4))
    asked = [(start.sampling.temperature, start.sampling.top_k) for start in target.starts]
    assert asked == [expected, (0.25, 3), expected, (0.25, 3), (0.0, 0)]
