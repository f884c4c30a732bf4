"""make's commands as a user types them: what is written arrives, and a missing gateway is told at once."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from deploy.stack import REPOSITORY
from services.common.pb.paceline.v1 import inference_pb2, inference_pb2_grpc
from tests.support.pace import kept, within_s

# Nothing is installed, and no make below this one runs.
MAKE = ("make", "--no-print-directory", "-o", "setup", "-o", ".venv/.installed", "MAKE=true")
# The suite itself runs below make; a user's make does not.
OF_A_MAKE_ABOVE = {"MAKELEVEL", "MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "ARGS"}
TRAPS = [
    """It's $HOME "q" $$x \\ # % ~ * é😀 `touch {0}` $(touch {0}) $(shell touch {0}) '$(shell touch {0})'; touch {0}""",
    "-x two\n\n  lines\tand a tab \n",
    "$(error stop)",
]
SHOWS_ITS_ARGUMENTS = f"#!{sys.executable}\nimport json, sys; print(json.dumps(sys.argv[1:]))\n"


class Echo(inference_pb2_grpc.InferenceServiceServicer):
    """Keeps the prompts that come."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    def GetModel(self, request: inference_pb2.GetModelRequest, context: Any) -> inference_pb2.GetModelResponse:
        raise NotImplementedError

    def ListModels(self, request: inference_pb2.ListModelsRequest, context: Any) -> inference_pb2.ListModelsResponse:
        raise NotImplementedError

    def Tokenize(self, request: inference_pb2.TokenizeRequest, context: Any) -> inference_pb2.TokenizeResponse:
        raise NotImplementedError

    def GenerateWhole(
        self, request: inference_pb2.GenerateWholeRequest, context: Any
    ) -> inference_pb2.GenerateWholeResponse:
        raise NotImplementedError

    def GetStatus(self, request: inference_pb2.GetStatusRequest, context: Any) -> inference_pb2.GetStatusResponse:
        raise NotImplementedError

    def Generate(
        self, request: inference_pb2.GenerateRequest, context: Any
    ) -> Iterator[inference_pb2.GenerateResponse]:
        self.prompts.append(request.prompt.text)
        yield inference_pb2.GenerateResponse(delta=inference_pb2.Delta(text="!"))
        yield inference_pb2.GenerateResponse(final=inference_pb2.Final())


@pytest.fixture
def unused_address() -> Iterator[str]:
    """An address at which nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


@pytest.fixture
def mute_address() -> Iterator[str]:
    """An address that takes connections and never speaks."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        yield f"127.0.0.1:{held.getsockname()[1]}"


def make(target: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [*MAKE, target, *words]
    environ = {name: value for name, value in os.environ.items() if name not in OF_A_MAKE_ABOVE} | environment
    return subprocess.run(command, cwd=REPOSITORY, env=environ, capture_output=True, text=True, check=False, timeout=60)


def both_ways(target: str, values: Mapping[str, str], *words: str) -> Iterator[str]:
    """Output of make with the values on its command line and in its environment."""
    for done in (
        make(target, *words, *(f"{name}={value}" for name, value in values.items())),
        make(target, *words, **values),
    ):
        assert done.returncode == 0, done.stderr
        yield done.stdout


@pytest.mark.parametrize("trap", TRAPS)
def test_a_prompt_reaches_the_gateway_as_written_and_nothing_runs(trap: str, tmp_path: Path) -> None:
    prompt = trap.format(tmp_path / "ran")
    echo = Echo()
    server = grpc.server(ThreadPoolExecutor(2))
    inference_pb2_grpc.add_InferenceServiceServicer_to_server(echo, server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    outputs = list(both_ways("generate", {"PROMPT": prompt, "ADDRESS": address}))
    server.stop(0)
    assert echo.prompts == [prompt, prompt]
    assert all(output.startswith(f"{prompt}!\n") for output in outputs)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("trap", TRAPS)
@pytest.mark.parametrize(
    ("target", "names"),
    [("up", ("MODEL", "DRAFTER", "ADDRESS")), ("demo", ("PROMPTS",)), ("chat", ("ADDRESS",)), ("status", ("ADDRESS",))],
)
def test_folders_and_files_are_passed_on_as_written(
    target: str, names: tuple[str, ...], trap: str, tmp_path: Path
) -> None:
    program, written = tmp_path / "shows", trap.format(tmp_path / "ran")
    program.write_text(SHOWS_ITS_ARGUMENTS)
    program.chmod(0o700)
    for output in both_ways(target, dict.fromkeys(names, written), f"PY={program}"):
        got = json.loads(output)
        assert {f"--{name.lower()}={written}" for name in names} <= set(got)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("kind", ["unused_address", "mute_address"])
def test_without_a_gateway_generate_says_so_within_three_seconds(kind: str, request: pytest.FixtureRequest) -> None:
    address = request.getfixturevalue(kind)
    bound_s = within_s(3.0)
    begun = time.monotonic()
    done = make("generate", f"ADDRESS={address}")
    assert kept(3.0, bound_s, time.monotonic() - begun)
    sentence, *of_make = done.stderr.splitlines()
    assert sentence == f"no gateway answers at {address}: start one with make up"
    assert [line.split(":")[0] for line in of_make] == ["make"]
    assert done.stdout == ""


def test_without_a_gateway_an_example_says_so_within_three_seconds(unused_address: str) -> None:
    bound_s = within_s(3.0)
    begun = time.monotonic()
    command = [sys.executable, "-m", "examples.python.stream", unused_address]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=60)
    assert kept(3.0, bound_s, time.monotonic() - begun)
    assert done.stderr == f"no gateway answers at {unused_address}: start one with make up\n"
    assert done.returncode == 1


def test_every_example_takes_the_way_that_says_so() -> None:
    for name in ("stream", "chat", "cancel", "deadline", "errors", "retry"):
        assert "with connected(address) as client:" in (REPOSITORY / f"examples/python/{name}.py").read_text()
        assert " = await connect(" in (REPOSITORY / f"examples/node/{name}.js").read_text()
