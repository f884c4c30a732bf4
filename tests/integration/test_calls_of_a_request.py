"""A short request over HTTP makes few calls of functions in the gateway, whatever the machine's speed."""

import gc
import json
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.integration.http_stack import CHAT, COMPLETIONS, chat, completion, serving
from tests.support.http_client import connected

WARM, ASKED = 5, 20
JSON = {"content-type": "application/json"}
OURS = ("/services/gateway/", "/uvicorn/", "/prometheus_client/")
"""What a gateway alone runs; the client and the target of this test share the process."""
MOST = {"whole": 425, "streamed": 425, "chat": 552}
"""Calls of Python's functions in these folders. With a sixth more, short answers were slower than before HTTP had all
its APIs."""
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "whole": (COMPLETIONS, completion("hello", max_tokens=1)),
    "streamed": (COMPLETIONS, completion("hello", max_tokens=1, stream=True)),
    "chat": (CHAT, chat("hello", max_tokens=1)),
}


@pytest.mark.parametrize("kind", BODIES)
async def test_a_short_request_takes_few_calls(kind: str, tmp_path: Path) -> None:
    """The least of twenty: a busy machine cuts the work into more pieces, and no count is below what it takes."""
    path, body = BODIES[kind]
    data = json.dumps(body).encode()
    calls: Counter[str] = Counter()
    totals: list[int] = []

    def count(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            name = frame.f_code.co_filename
            calls.update(folder for folder in OURS if folder in name)

    async with serving(tmp_path) as (_, client), connected(client.address) as http:
        for number in range(WARM + ASKED):
            if number == WARM:
                gc.disable()
                sys.setprofile(count)
            try:
                await http.send("POST", path, data, JSON)
                assert (await http.reply()).status == 200
                http.again()
                totals.append(sum(calls.values()))
            except BaseException:
                sys.setprofile(None)
                raise
        sys.setprofile(None)
        gc.enable()
    print({folder: number // ASKED for folder, number in calls.items()})
    least = min(after - before for before, after in pairwise(totals[WARM - 1 :]))
    assert MOST[kind] * 0.8 < least <= MOST[kind]
