"""The commands at a terminal: what is pasted, typed ahead, remembered, and the key that ends."""

import asyncio
import fcntl
import json
import os
import pty
import re
import signal
import struct
import sys
import termios
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from deploy.stack import REPOSITORY
from tests.integration.gateway_stack import WAIT_S, harness
from tests.support.fakes_target import FakeTarget

PASTE = "\x1b[200~{}\x1b[201~"
DONE = r"\[length, 8 tokens"


class Terminal:
    """A command at a terminal of its own."""

    def __init__(self, process: Process, master: int) -> None:
        self.process, self._master, self.shown = process, master, ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    async def until(self, pattern: str, times: int = 1) -> str:
        """Waits until a pattern was shown so often; returns everything that was shown."""
        async with asyncio.timeout(WAIT_S):
            while len(re.findall(pattern, self._read())) < times:
                await asyncio.sleep(0.01)
        return self.shown

    async def ended(self) -> int:
        async with asyncio.timeout(WAIT_S):
            while self.process.returncode is None:
                self._read()
                await asyncio.sleep(0.01)
        return self.process.returncode

    def _read(self) -> str:
        try:
            self.shown += os.read(self._master, 1 << 16).decode(errors="replace")
        except OSError:  # Nothing now, or nobody has the terminal open any more.
            pass
        return self.shown


@asynccontextmanager
async def terminal(folder: Path, *words: str) -> AsyncIterator[Terminal]:
    master, slave = pty.openpty()
    os.set_blocking(master, False)
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
    own = {"PYTHONPATH": str(REPOSITORY), "TERM": "xterm", "XDG_STATE_HOME": str(folder)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "paceline", *words, stdin=slave, stdout=slave, stderr=slave, env=os.environ | own,
        start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        os.close(master)


async def test_pasted_lines_are_one_message(tmp_path: Path) -> None:
    async with (
        harness(tmp_path) as one,
        terminal(tmp_path, "chat", f"--address={one.bound.grpc}", "--max-tokens=8") as at,
    ):
        await at.until("> ")
        at.type(PASTE.format("first line\nsecond line\n/new\nlast line") + "\r")
        await at.until(DONE)
        assert len(one.targets[0].starts) == 1
        at.type("short\r")
        await at.until(DONE, 2)
        assert len(one.targets[0].starts) == 2
        at.type("\x04")
        assert await at.ended() == 0
    kept = [json.loads(line) for line in (tmp_path / "paceline" / "chat_history").read_text().splitlines()]
    assert kept == ["first line\nsecond line\n/new\nlast line", "short"]
    assert (tmp_path / "paceline" / "chat_history").stat().st_mode & 0o77 == 0


async def test_what_is_typed_ahead_waits_and_is_not_shown_in_the_answer(tmp_path: Path) -> None:
    words = ("chat", "--max-tokens=60", "--no-history")
    async with (
        harness(tmp_path, [FakeTarget(pace_s=0.02)]) as one,
        terminal(tmp_path, *words, f"--address={one.bound.grpc}") as at,
    ):
        await at.until("> ")
        at.type("go\r")
        async with asyncio.timeout(WAIT_S):
            while one.targets[0].committed < 4:
                await asyncio.sleep(0.01)
        at.type("QQTYPED\nAHEADQQ")
        answer, _, _ = (await at.until(r"\[length, 60 tokens")).partition("[length")
        assert "QQ" not in answer
        await at.until("AHEADQQ")
        at.type("\r")
        await at.until(r"\[length, 60 tokens", 2)
        assert len(one.targets[0].starts) == 2, "both lines are one message"
        at.type("/exit\r")
        assert await at.ended() == 0
    assert not (tmp_path / "paceline").exists()


async def test_earlier_messages_come_back_in_the_next_chat(tmp_path: Path) -> None:
    async with harness(tmp_path) as one:
        words = ("chat", f"--address={one.bound.grpc}", "--max-tokens=8")
        for keys, starts in (("remember me\r", 1), ("\x1b[A\r", 2)):
            async with terminal(tmp_path, *words) as at:
                await at.until("> ")
                at.type(keys)
                await at.until(DONE)
                assert len(one.targets[0].starts) == starts and "remember me" in at.shown
                at.type("/exit\r")
                assert await at.ended() == 0
        first, again = one.targets[0].starts
        assert first.prompt_length == again.prompt_length


async def test_commands_are_told_for_every_model_and_are_not_sent(tmp_path: Path) -> None:
    async with harness(tmp_path, [FakeTarget(model="paceline-embedded")]) as one:
        async with terminal(tmp_path, "chat", f"--address={one.bound.grpc}", "--max-tokens=8") as at:
            assert "/help" in await at.until("> ")
            at.type("/help\r")
            await at.until("/system TEXT")
            at.type("/nwe\r")
            await at.until("no such command: /nwe")
            assert not one.targets[0].starts
            at.type("/etc/passwd is a path\r")
            await at.until(DONE)
            at.type("/system be brief, and long enough to be told from nothing\r/new\r/etc/passwd is a path\r")
            await at.until(DONE, 2)
            at.process.send_signal(signal.SIGTERM)
            await at.ended()
        first, second = (start.prompt_length for start in one.targets[0].starts)
        assert second > first, "/new keeps the system's message"


async def test_q_ends_the_status(tmp_path: Path) -> None:
    async with harness(tmp_path) as one, terminal(tmp_path, "status", f"--address={one.bound.grpc}") as at:
        await at.until("1 of 1 pairs ready")
        at.type("xq")
        assert await at.ended() == 0
