"""The example clients in Python."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message_factory import GetMessageClass

from deploy.stack import REPOSITORY
from tests.integration.example_gateway import example_gateway
from tests.integration.pair import WAIT_S


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with example_gateway() as found:
        yield found


def _run(name: str, *arguments: str, typed: str = "") -> str:
    command = [sys.executable, "-m", f"examples.python.{name}", *arguments]
    done = subprocess.run(
        command, check=False, cwd=REPOSITORY, input=typed, capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_stream_tells_how_it_ended(address: str) -> None:
    output = _run("stream", address, "some words")
    assert re.search(r"\[\w+, seed 1\]\n\[\d+ tokens in \d+ rounds, [\d.]+ tokens per round\]", output)
    text, _ = output.rsplit("\n[", 1)
    assert _run("stream", address, "some words").startswith(text), "one seed, one text"


def test_chat_answers_every_line(address: str) -> None:
    assert len(_run("chat", address, typed="hello\nand then?\n\nnot read\n")) > 2


def test_cancel_stops_in_the_middle(address: str) -> None:
    found = re.fullmatch(r"cancelled after (\d+) tokens\n", _run("cancel", address))
    assert found
    assert 16 <= int(found[1]) <= 400


def test_deadline_takes_what_fits(address: str) -> None:
    output = _run("deadline", address, "0.3")
    assert re.fullmatch(r"((deadline|length) after \d+ tokens|no token came in time)\n", output)


def test_errors_name_reason_and_field(address: str) -> None:
    lines = dict(line.split(": ", 1) for line in _run("errors", address).splitlines())
    assert lines["temperature out of range"].startswith("INVALID_ARGUMENT INVALID_FIELD field=sampling.temperature")
    assert lines["empty prompt"].startswith("INVALID_ARGUMENT INVALID_FIELD field=prompt")
    assert lines["unknown model"].startswith("NOT_FOUND UNKNOWN_MODEL")
    assert lines["negative number of tokens"].startswith("max_tokens: -1 is not a whole number")


def test_retry_gives_a_text(address: str) -> None:
    assert _run("retry", address).strip()


def test_the_committed_descriptor_set_is_enough_for_a_client(address: str) -> None:
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString((REPOSITORY / "proto/baseline.binpb").read_bytes()).file:
        pool.Add(file)
    generate = pool.FindServiceByName("paceline.v1.InferenceService").methods_by_name["Generate"]
    asked, answered = (GetMessageClass(kind) for kind in (generate.input_type, generate.output_type))
    request = ParseDict({"prompt": {"text": "x"}, "stopping": {"maxTokens": 4, "ignoreEos": True}}, asked())
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_stream(
            f"/{generate.containing_service.full_name}/{generate.name}", asked.SerializeToString, answered.FromString
        )
        messages = [MessageToDict(message) for message in call(request, timeout=WAIT_S)]
    assert sum(len(message.get("delta", {}).get("tokenIds", ())) for message in messages) == 4
    assert messages[-1]["final"]["finishReason"] == "FINISH_REASON_LENGTH"


def test_the_shipped_service_config_is_what_the_library_expects() -> None:
    config = json.loads((REPOSITORY / "paceline/service_config.json").read_text())
    (method,) = config["methodConfig"]
    assert method["name"] == [{"service": "paceline.v1.InferenceService"}]
    assert method["retryPolicy"]["retryableStatusCodes"] == ["UNAVAILABLE"]
    assert 2 <= method["retryPolicy"]["maxAttempts"] <= 5, "more than five are cut to five"
    assert "paceline/service_config.json" in (REPOSITORY / "docs/use.md").read_text()
