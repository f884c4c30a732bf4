"""The commands as processes of their own, against a gateway over fake targets."""

import asyncio
import json
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from deploy.stack import REPOSITORY
from tests.integration.gateway_stack import WAIT_S, Harness, harness
from tests.integration.test_gateway_stream import until
from tests.support.fakes_target import FakeTarget


@asynccontextmanager
async def command(*words: str, folder: Path | None = None) -> AsyncIterator[Process]:
    """A command that runs; killed when the test has not waited for it."""
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY), "COLUMNS": "120"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "paceline", *words, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environ, cwd=folder,
        # A shell without job control starts what it puts aside deaf to Ctrl-C, and children inherit that.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def output(*words: str, typed: str = "", code: int = 0, folder: Path | None = None) -> str:
    """What a command prints."""
    async with command(*words, folder=folder) as process, asyncio.timeout(WAIT_S):
        out, err = await process.communicate(typed.encode())
    assert process.returncode == code, err.decode()
    return (out if code == 0 else err).decode()


def at(one: Harness) -> str:
    return f"--address={one.bound.grpc}"


async def test_generate_takes_its_prompt_from_the_line_or_from_the_input(tmp_path: Path) -> None:
    async with harness(tmp_path) as one:
        shown = await output("generate", at(one), "--max-tokens", "8", "--", "-x two")
        assert shown.startswith("-x two") and re.search(r"\n\[8 tokens in \d+ rounds\]\n$", shown)
        assert await output("generate", at(one), "--max-tokens", "8", typed="-x two") == shown


async def test_a_refusal_is_one_line_and_the_code_is_1(tmp_path: Path) -> None:
    async with harness(tmp_path) as one:
        told = await output("generate", at(one), "--temperature", "9", "x", code=1)
    assert re.fullmatch(r"INVALID_ARGUMENT: .*temperature.*\n", told)


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("paceline-embedded", "paceline-embedded: the small embedded demonstration model"),
        ("Qwen3-4B", "Qwen3-4B (/new"),
    ],
)
async def test_chat_says_first_what_one_talks_to(tmp_path: Path, name: str, first: str) -> None:
    async with harness(tmp_path, [FakeTarget(model=name)]) as one:
        assert (await output("chat", at(one), typed="/exit\n")).startswith(first)


async def test_chat_sends_all_turns_and_new_forgets_them(tmp_path: Path) -> None:
    async with harness(tmp_path) as one:
        shown = await output(
            "chat", at(one), "--system", "short", "--max-tokens", "8", typed="one\n\ntwo\n/new\nthree\n"
        )
        ends = re.findall(r"\[length, 8 tokens, [\d.]+ tokens per round, .*first after \d+ ms\]", shown)
        assert len(ends) == 3
        first, second, third = (start.prompt_length for start in one.targets[0].starts)
        assert second > first + 8, "the second turn holds the first one and its answer"
        assert third < second


async def test_ctrl_c_ends_the_answer_and_not_the_chat(tmp_path: Path) -> None:
    words = ("--max-tokens", "2000")
    async with harness(tmp_path, [FakeTarget(pace_s=0.02)]) as one, command("chat", at(one), *words) as process:
        assert process.stdin and process.stdout
        process.stdin.write(b"long\n")
        await process.stdout.readline()
        await process.stdout.read(1)  # the answer is being shown
        await until(lambda: one.targets[0].committed > 8)
        process.send_signal(signal.SIGINT)
        await until(lambda: not one.targets[0].active)
        one.targets[0].pace_s = 0.001
        # Forgotten, for on a slow machine the first answer may be so long that the context holds no second one.
        out, err = await asyncio.wait_for(process.communicate(b"/new\nagain\n"), WAIT_S)
    assert process.returncode == 0, err.decode()
    assert re.search(r"\[cancelled, \d+ tokens, .*\n.*\[length, 2000 tokens", out.decode(errors="replace"), re.DOTALL)


async def test_a_refused_turn_leaves_the_conversation_as_it_was(tmp_path: Path) -> None:
    async with harness(tmp_path, [FakeTarget(context_limit=200)]) as one:
        shown = await output("chat", at(one), "--max-tokens", "8", typed=f"{'many words ' * 90}\nshort\n")
        assert "INVALID_ARGUMENT" in shown and "[length, 8 tokens" in shown


async def test_status_is_a_table_or_json(tmp_path: Path) -> None:
    async with harness(tmp_path, [FakeTarget("pair-7")]) as one:
        table = await output("status", at(one))
        assert "fake: 1 of 1 pairs ready" in table and re.search(r"pair-7 +none? +0 of 8", table)
        found = json.loads(await output("status", at(one), "--json"))
    assert (found["model"], found["ready_pairs"], found["each"][0]["pair_id"]) == ("fake", 1, "pair-7")


async def test_bench_tells_times_and_speed_of_every_level(tmp_path: Path) -> None:
    async with harness(tmp_path) as one:
        words = ("bench", one.bound.grpc, "--concurrency", "1,3", "--requests", "2", "--max-tokens", "12", "--json")
        shown = await output(*words, "--chat", folder=tmp_path)
    levels = json.loads(shown.splitlines()[-1])
    assert [(level["concurrency"], level["requests"], level["tokens"]) for level in levels] == [(1, 2, 24), (3, 3, 36)]
    assert all(0 < level["ttft_p50_ms"] <= level["ttft_p99_ms"] and level["itl_p50_ms"] > 0 for level in levels)
    assert all(level["tok_s"] == pytest.approx(level["tokens"] / level["wall_s"]) for level in levels)
    assert "TTFT p50" in shown


async def test_bench_ends_when_the_first_request_fails(tmp_path: Path) -> None:
    async with harness(tmp_path) as one:
        told = await output("bench", one.bound.grpc, "--model", "other", code=1, folder=tmp_path)
    assert re.fullmatch(r"NOT_FOUND: .*`other`.*\n", told)


async def test_generate_asks_as_a_chat_stops_and_tells_json(tmp_path: Path) -> None:
    async with harness(tmp_path) as one:
        words = ("generate", at(one), "--max-tokens", "8", "hello")
        plain = json.loads(await output(*words, "--json"))
        chat = json.loads(await output(*words, "--json", "--system", "short", "--top-p", "0.5"))
        shown = await output(*words, "--system", "short")
        end = plain["text"][3:6]
        cut = json.loads(await output(*words, "--json", "--stop", "never there", "--stop", end))
    assert (len(plain["tokens"]), plain["finish"], plain["rounds"] > 0) == (8, "length", True)
    assert plain["tau"] == pytest.approx((plain["accepted"] + plain["rounds"]) / plain["rounds"], abs=1e-3)
    assert chat["prompt_tokens"] > plain["prompt_tokens"]
    assert not shown.startswith("hello"), "an answer is not a continuation"
    assert cut["finish"] == "stop_string" and cut["text"] == plain["text"][: plain["text"].index(end)]
