"""The example clients in Node, with the packages of make test-deploy instead of npm install."""

import base64
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2

from tests.deploy.full.node import PACKAGES
from tests.deploy.test_drift import ROOT
from tests.integration.example_gateway import example_gateway
from tests.integration.pair import WAIT_S

Run = Callable[..., str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The examples in a copy of the tree, where they find their packages as the original would."""
    tree = tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT / "examples/node", tree / "examples/node", ignore=shutil.ignore_patterns("node_modules"))
    (tree / "proto").symlink_to(ROOT / "proto")
    (tree / "node_modules").symlink_to(PACKAGES / "node_modules")
    return tree / "examples/node"


@pytest.fixture(scope="module")
def run(folder: Path) -> Iterator[Run]:
    """Runs an example against a gateway."""
    with example_gateway() as address:
        yield lambda name, *arguments, typed="": _node(folder, f"{name}.js", address, *arguments, typed=typed)


def _node(folder: Path, *arguments: str, typed: str = "") -> str:
    command = ["node", *arguments]
    done = subprocess.run(command, check=False, cwd=folder, input=typed, capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_stream_tells_how_it_ended(run: Run) -> None:
    output = run("stream", "some words")
    assert re.search(r"\[FINISH_REASON_\w+, seed 1\]\n\[\d+ tokens in \d+ rounds, \d+ drafts accepted\]", output)
    text, _ = output.rsplit("\n[FINISH", 1)
    assert run("stream", "some words").startswith(text), "one seed, one text"


def test_chat_answers_every_line(run: Run) -> None:
    assert len(run("chat", typed="hello\nand then?\n\nnot read\n")) > 2


def test_cancel_stops_in_the_middle(run: Run) -> None:
    found = re.fullmatch(r"cancelled after (\d+) tokens\n", run("cancel"))
    assert found
    assert 16 <= int(found[1]) <= 400


def test_deadline_takes_what_fits(run: Run) -> None:
    output = run("deadline", "0.3")
    assert re.fullmatch(r"(FINISH_REASON_(DEADLINE|LENGTH) after \d+ tokens|no token came in time)\n", output)


def test_errors_name_reason_and_field(run: Run) -> None:
    lines = dict(line.split(": ", 1) for line in run("errors").splitlines())
    assert lines["temperature out of range"].startswith("INVALID_ARGUMENT INVALID_FIELD field=sampling.temperature")
    assert lines["empty prompt"].startswith("INVALID_ARGUMENT INVALID_FIELD field=prompt")
    assert lines["unknown model"].startswith("NOT_FOUND UNKNOWN_MODEL")
    assert lines["option not built"].startswith("INVALID_ARGUMENT UNSUPPORTED field=constraint")


def test_retry_gives_a_text(run: Run) -> None:
    assert run("retry").strip()


def test_a_refusal_tells_when_to_come_back(folder: Path) -> None:
    status = status_pb2.Status(code=8, message="full")
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason="OVERLOADED", domain="paceline"))
    status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=Duration(seconds=1, nanos=500_000_000)))
    program = """
        import { refusal } from "./paceline.js";
        const trailer = Buffer.from(process.argv[1], "base64");
        console.log(JSON.stringify(refusal({ code: 8, details: "full", metadata: { get: () => [trailer] } })));
    """
    encoded = base64.b64encode(status.SerializeToString()).decode()
    found = json.loads(_node(folder, "--input-type=module", "--eval", program, encoded))
    assert (found["code"], found["reason"], found["retryAfterMs"]) == ("RESOURCE_EXHAUSTED", "OVERLOADED", 1500)


def test_every_example_has_a_twin_in_python() -> None:
    """Beside what those of each language begin with."""
    names = {path.stem for path in (ROOT / "examples/node").glob("*.js")} - {"paceline"}
    assert names == {path.stem for path in (ROOT / "examples/python").glob("*.py")} - {"gateway"}
