"""The whole system on one machine: started, used, and gone without a trace."""

import asyncio
import ipaddress
import json
import os
import random
import re
import shlex
import signal
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import grpc
import pytest
from ray.core.generated import gcs_service_pb2

from deploy.demo import read_prompts
from deploy.hints import Served, to_try
from deploy.stack import ServiceProcess, Stack, StackError, StackSettings, describe_target
from deploy.starting import Screen
from deploy.up import follow
from paceline import Client, Message, Options, RefusedError
from tests.integration.deploy.controller_ports import IDLE, Watched, assault, first_calls
from tests.integration.deploy.ray_ports import listeners, ray_answers, status_of
from tests.integration.http_stack import COMPLETIONS
from tests.support import http_client
from tests.support.warm import START_S

PROMPT = "def add(a, b):\n"


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    # The values are the CPU's own, but for the two that a test looks for; a gateway knows none of these variables.
    flags = ("--target.block-size", "8", "--target.widths", "1,4,8")
    environment = {
        "PACELINE_TARGET__BLOCKS": "700",
        "PACELINE_TARGET__LOG_LEVEL": "debug",
        "PACELINE_DRAFTER__NGRAM_MAX": "5",
        "PACELINE_POLL_S": "0.25",
    }
    http = ("--http", "127.0.0.1:0")
    settings = StackSettings(ready_s=400.0, gateway_flags=http, cluster_flags=flags, environment=environment)
    running = Stack(settings)
    yield running.__enter__()
    if running.run_dir.exists():
        running.stop()


def options(temperature: float, on: bool = True) -> Options:
    return Options(max_tokens=48, temperature=temperature, seed=3, speculation=on, ignore_eos=True)


def test_text_comes_back_the_same_with_speculation_on_and_off(stack: Stack) -> None:
    with Client(stack.gateway_address) as client:
        for temperature in (0.0, 0.8):
            spec = client.generate(PROMPT, options(temperature))
            plain = client.generate(PROMPT, options(temperature, on=False))
            assert spec.tokens == plain.tokens
            assert spec.text == plain.text
            assert len(spec.tokens) == 48
            assert spec.finish == "length"
            assert plain.rounds == 47


FINISH = {"length": "length", "context": "length", "stop_token": "stop", "stop_string": "stop"}


def asked_over_http(stack: Stack, path: str, body: dict[str, Any]) -> Any:
    """What the gateway answers to a body."""
    data = json.dumps({"model": stack.settings.model_name} | body).encode()
    url = f"http://{stack.gateway_http[0]}{path}"
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60.0) as reply:
        return json.load(reply)


def test_the_same_prompts_give_the_same_over_grpc_and_http(
    stack: Stack, full: bool, report_counts: Callable[[str, int], None]
) -> None:
    """Text, end and usage, greedy and seeded, prompts as text, as ids and as chats in turn."""
    count = 200 if full else 10
    prompts = (read_prompts("", count) * count)[:count]
    with Client(stack.gateway_address) as client:
        for number, text in enumerate(prompts):
            temperature = 0.8 * (number % 2)
            sampling = {"temperature": temperature, "seed": number, "max_tokens": 24, "stop": ["\n\n"]}
            given = Options(temperature=temperature, seed=number, max_tokens=24, stop=("\n\n",))
            if number % 5 == 4:
                over_grpc = client.generate([Message("user", text)], given)
                messages = [{"role": "user", "content": text}]
                whole = asked_over_http(stack, "/v1/chat/completions", {"messages": messages} | sampling)
                written = whole["choices"][0]["message"]["content"]
            else:
                prompt = client.tokenize(text) if number % 5 == 3 else text
                over_grpc = client.generate(prompt, given)
                whole = asked_over_http(stack, "/v1/completions", {"prompt": prompt} | sampling)
                written = whole["choices"][0]["text"]
            assert written == over_grpc.text
            assert whole["choices"][0]["finish_reason"] == FINISH[over_grpc.finish]
            assert whole["usage"]["prompt_tokens"] == over_grpc.prompt_tokens
            assert whole["usage"]["completion_tokens"] == len(over_grpc.tokens)
    report_counts("prompts_over_both", count)


def test_clients_over_http_that_go_at_any_moment_leave_no_slot_and_no_block(
    stack: Stack, full: bool, seed: int, report_counts: Callable[[str, int], None]
) -> None:
    chance, rounds = random.Random(seed), 50 if full else 1
    asked = {"model": stack.settings.model_name, "prompt": PROMPT, "max_tokens": 1500, "ignore_eos": True}

    async def go() -> None:
        body = json.dumps(asked | {"n": chance.choice([1, 1, 3]), "stream": chance.random() < 0.7}).encode()
        said = {"content-type": "application/json", "content-length": str(len(body))}
        async with http_client.connected(stack.gateway_http[0]) as raw:
            raw.begin(COMPLETIONS, body if chance.random() < 0.8 else body[:-9], said)
            await asyncio.sleep(chance.random() * 0.2)

    async def go_together() -> None:
        await asyncio.gather(*(go() for _ in range(10)))  # on a slow machine all may go before they reach the target
        async with aclosing(http_client.Client(stack.gateway_http[0]).stream(COMPLETIONS, asked)) as events:
            await anext(events)

    for _ in range(rounds):
        asyncio.run(go_together())
    (pair,) = stack.pairs()
    for gauge in ("paceline_running_requests", "paceline_waiting_requests", 'paceline_kv_blocks{.*state="owned"'):
        until_zero(pair.metrics_address, gauge)
    until_zero(stack.gateway_metrics[0], "paceline_gateway_inflight_requests")
    none = r'^paceline_requests_total{finish_reason="cancelled".* 0\.0$'
    assert not re.search(none, scraped(pair.metrics_address), re.M)
    report_counts("disconnects_of_a_pair", 11 * rounds)


def test_what_make_up_prints_to_be_pasted_is_answered(stack: Stack) -> None:
    *_, line = to_try(Served(stack.gateway_address, stack.gateway_http[0], stack.settings.model_name))
    _, url, _, header, _, body = shlex.split(line)
    name, _, value = header.partition(": ")
    with urllib.request.urlopen(urllib.request.Request(url, body.encode(), {name: value}), timeout=60.0) as reply:
        assert json.load(reply)["choices"][0]["text"]


def test_the_controller_announces_the_pair(stack: Stack) -> None:
    (pair,) = stack.pairs()
    assert pair.pair_id == "pair-0"
    assert pair.target_address
    assert pair.metrics_address


def test_settings_of_the_target_reach_it_by_flag_and_by_variable(stack: Stack) -> None:
    (pair,) = stack.pairs()
    said = describe_target(pair.target_address)
    assert (said.budget.block_size, said.budget.blocks) == (8, 700)


def test_target_and_controller_tell_how_the_gpu_is_shared(stack: Stack) -> None:
    (pair,) = stack.pairs()
    assert pair.gpu_sharing == describe_target(pair.target_address).gpu_sharing == "none"


def test_every_service_answers_scrapes(stack: Stack) -> None:
    (pair,) = stack.pairs()
    (cluster,) = (process.bound(1.0) for process in stack.processes if process.name == "cluster")
    for address in (cluster["metrics"], pair.metrics_address, *stack.gateway_metrics):
        page = scraped(address)
        assert re.search(r"^process_resident_memory_bytes \d", page, re.MULTILINE)
        assert 'paceline_build_info{model_name="paceline-embedded",' in page
    controller = scraped(cluster["metrics"])
    labels = 'model_name="paceline-embedded",pair="pair-0"'
    for series in (
        f'cluster_pairs{{{labels},state="ready"}} 1.0',
        f'cluster_pairs{{{labels},state="starting"}} 0.0',
        f'cluster_restarts_total{{{labels},service="target"}} 0.0',
        f"cluster_placements_total{{{labels}}} 1.0",
        f'cluster_failures_total{{{labels},reason="no_room"}} 0.0',
    ):
        assert f"paceline_{series}" in controller


def until_zero(address: str, gauge: str) -> None:
    """Waits until a service says 0."""
    end = time.monotonic() + 30.0
    while not re.search(rf"^{gauge}.* 0\.0$", scraped(address), re.MULTILINE):
        assert time.monotonic() < end, gauge
        time.sleep(0.05)


def scraped(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30.0) as answer:
        return str(answer.read().decode())


def test_every_line_of_target_and_drafter_is_json_on_the_controllers_stdout(stack: Stack) -> None:
    announced, *entries = (json.loads(line) for line in (stack.run_dir / "cluster.out").read_text().splitlines())
    assert announced["service"] == "cluster"
    assert {(entry["service"], entry["pair"]) for entry in entries} == {("target", "pair-0"), ("drafter", "pair-0")}
    (planned,) = (entry for entry in entries if entry["message"] == "memory planned")
    assert planned["blocks"] == 700
    assert planned["per_token"]["target_kv"] > 0


def test_no_log_holds_a_prompt(stack: Stack) -> None:
    secret = "Zwetschgendatschi"
    with Client(stack.gateway_address) as client:
        prompt = client.generate(secret, Options(max_tokens=4))
        with pytest.raises(RefusedError):
            client.generate(secret, Options(max_tokens=4, temperature=-1.0))
    assert prompt.tokens
    for log in [*stack.run_dir.glob("*.out"), *stack.run_dir.glob("*.log")]:
        assert secret not in log.read_text(errors="replace"), log.name


def ask_ray(stack: Stack, method: str, key: bool = True) -> bytes:
    """What its control store answers to an empty request, with the token or without."""
    (port,) = (path.read_text() for path in stack.run_dir.rglob("gcs_server_port_*"))
    (token,) = stack.run_dir.rglob("ray.token")
    assert token.stat().st_mode & 0o777 == 0o600
    with grpc.insecure_channel(f"127.0.0.1:{port.strip()}") as channel:
        ask: Any = channel.unary_unary(f"/ray.rpc.{method}")
        shown = (("authorization", f"Bearer {token.read_text()}"),) if key else ()
        return bytes(ask(b"", timeout=30.0, metadata=shown))


def test_ray_refuses_whoever_lacks_the_token(stack: Stack) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        ask_ray(stack, "NodeInfoGcsService/GetClusterId", key=False)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert ask_ray(stack, "NodeInfoGcsService/GetClusterId")


def test_ray_keeps_no_record_of_the_controllers_looks_at_its_pairs(stack: Stack) -> None:
    """There were some hundred by now, and each would stay."""
    answer = ask_ray(stack, "TaskInfoGcsService/GetTaskEvents")
    assert gcs_service_pb2.GetTaskEventsReply.FromString(answer).num_total_stored == 0


def test_ray_listens_on_loopback_alone(stack: Stack) -> None:
    listening = [host for pid in members(stack.processes[0].process.pid) for host, _ in listeners(pid)]
    assert len(listening) >= 4, "the store of Ray, its raylet, and workers"
    assert {address for address in listening if not ipaddress.ip_address(address).is_loopback} == set()


def test_no_port_of_ray_answers_without_the_token(stack: Stack) -> None:
    """Every method of its protocols is asked on every port, and whatever speaks HTTP is asked for a page."""
    refusing = 0
    for pid in members(stack.processes[0].process.pid):
        for host, port in listeners(pid):
            answers = ray_answers(f"{host}:{port}")
            assert set(answers.values()) <= {"UNAUTHENTICATED", "UNIMPLEMENTED", "UNAVAILABLE"}, (name_of(pid), answers)
            refusing += "UNAUTHENTICATED" in answers.values()
            if name_of(pid).startswith("ray::RuntimeEnv"):
                assert status_of(f"http://{host}:{port}/get_or_create_runtime_env") == 401
    assert refusing >= 5, "GCS, the raylet, its store of objects, and workers"


def test_ray_hands_on_no_logs_and_adds_no_machines(stack: Stack) -> None:
    """Both would be processes that look around all the time, on the cores of target and drafter."""
    running = [Path(f"/proc/{pid}/cmdline").read_text() for pid in members(stack.processes[0].process.pid)]
    assert any("gcs_server" in command for command in running)
    assert [command for command in running if "monitor.py" in command] == []


def test_rays_memory_monitor_is_off(stack: Stack) -> None:
    (log,) = stack.run_dir.glob("c/ray/session_2*/logs/raylet.out")
    text = log.read_text()
    assert "disabled" in "".join(line for line in text.splitlines() if "MemoryMonitor" in line), text[-4000:]
    assert "MemoryMonitor initialized" not in text


def test_a_host_without_memory_ends_target_and_drafter_no_sooner_than_others(stack: Stack) -> None:
    own = int(Path("/proc/self/oom_score_adj").read_text())
    workers = [pid for pid in members(stack.processes[0].process.pid) if name_of(pid).startswith("ray::")]
    assert workers
    assert {int(Path(f"/proc/{pid}/oom_score_adj").read_text()) for pid in workers} == {own}


def test_strangers_at_the_ports_of_the_controller_take_little_and_refuse_nobody(
    stack: Stack, seed: int, full: bool
) -> None:
    """What they hold is bounded by address; a call of that same address waits, and is answered."""
    (process,) = (each for each in stack.processes if each.name == "cluster")
    bound = process.bound(1.0)
    with Watched(process.process.pid) as watched:
        waits = first_calls(bound)
        count = assault(bound, 100 if full else 12, random.Random(seed))
        assert watched.at_rest(60.0), "threads and descriptors"
    cost = watched.cost
    print(f"controller: {count} attacks, {cost}, first calls behind idle ones after {waits}")
    assert cost.memory_mib <= 64
    assert cost.threads <= 24, "eight for metrics, some of gRPC's own"
    assert cost.descriptors <= 2 * IDLE
    with Client(stack.gateway_address) as client:
        assert client.generate(PROMPT, Options(max_tokens=4)).tokens


def test_a_target_that_dies_and_comes_back_is_told_on_the_terminal(
    stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    (target,) = (pid for pid in members(stack.processes[0].process.pid) if name_of(pid).startswith("ray::TargetHos"))
    stopped = threading.Event()
    following = threading.Thread(target=follow, args=(stack, stopped, Screen().step))
    following.start()
    os.kill(target, signal.SIGKILL)
    told, end = "", time.monotonic() + 60.0
    while "serves again" not in told and time.monotonic() < end:
        told += capsys.readouterr().out
        time.sleep(0.05)
    stopped.set()
    following.join()
    (pair,) = stack.pairs()
    assert f"] pair-0 serves again at {pair.target_address} (target restarts: 1)" in told
    assert len(told.splitlines()) <= 3, "a line that it went, one that it is back, one of its drafter"


def members(session: int) -> list[int]:
    """Processes of a session."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session:
            found.append(int(entry.name))
    return found


def name_of(pid: int) -> str:
    """The name that a process shows."""
    return Path(f"/proc/{pid}/comm").read_text().strip()


def test_nothing_is_left_behind(stack: Stack) -> None:
    """The last test that has the stack ends it; one of its targets has been killed and started again."""
    run_dir = stack.run_dir
    stack.stop()
    assert not run_dir.exists()
    # A code other than 0 means that a service was ended instead of draining.
    assert {process.name: process.process.returncode for process in stack.processes} == {"cluster": 0, "gateway-0": 0}
    end = time.monotonic() + 30.0
    while (left := processes_naming(str(run_dir))) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left


def processes_naming(text: str) -> list[str]:
    """Command lines of live processes that hold the text; a dead one that nobody reaped has none."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line:
            found.append(line)
    return found


def test_a_model_that_cannot_load_is_reported_with_its_log(tmp_path: Path) -> None:
    process = ServiceProcess(
        "target", ["services.target", "--model", str(tmp_path / "nowhere")], tmp_path, {"PYTHONUNBUFFERED": "1"}
    )
    with pytest.raises(StackError, match=r"nowhere|config\.json"):
        process.bound(START_S)
        process.process.wait(60.0)
        process.check()
    assert process.process.returncode not in (0, None)
