"""The secret between gateways and targets rotates while streams run; and why a pair is away, in words."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import grpc
import pytest

from services.common.pb.paceline.v1 import inference_pb2
from services.common.request.errors import PacelineError, protocol
from services.common.serving.secret import OVERLAP_S, Secret
from tests.integration.gateway_stack import WAIT_S, Harness, ask_for, harness
from tests.integration.test_target_trust import target
from tests.support.fakes_target import FakeTarget
from tests.support.ports import free_ports

OLD, NEW = "the old secret of this fleet", "the new secret of this fleet"
STEPS = ("gateway", "target", "cut")


async def why(one: Harness, wanted: str) -> str:
    """Waits until a pair is away for a reason that begins so; of no pair the text is empty."""
    found: list[str] = []
    async with asyncio.timeout(WAIT_S):
        while not found or not all(each.startswith(wanted) if wanted else not each for each in found):
            status = await one.stub.GetStatus(inference_pb2.GetStatusRequest(), timeout=WAIT_S)
            found = [pair.away for pair in status.each]
            await asyncio.sleep(0.02)
    return found[0]


async def test_a_rotation_in_any_order_loses_no_stream(tmp_path: Path) -> None:
    """The gateway sees the new secret first, or the target does, and connections break before, between and after."""
    for number, order in enumerate(itertools.permutations(STEPS)):
        files = {name: tmp_path / f"{name}-{number}" for name in ("gateway", "target")}
        for file in files.values():
            file.write_text(OLD)
        shared = Secret(file=str(files["target"]))
        fake, other = FakeTarget("a", pace_s=0.01, secret=shared), FakeTarget("b", pace_s=0.01, secret=shared)
        (tmp_path / str(number)).mkdir()
        path = str(files["gateway"])
        async with harness(tmp_path / str(number), [fake, other], target_secret_file=path) as one:
            await why(one, "")
            streams = [asyncio.create_task(one.ask(ask_for(max_tokens=300, seed=seed))) for seed in range(4)]
            for step in order:
                if step == "cut":
                    for each in (fake, other):
                        await each.die()
                        await each.start()
                        await why(one, "")
                else:
                    files[step].write_text(NEW)
                    await (one.app._secret if step == "gateway" else shared).look()
            answers = await asyncio.gather(*streams)
            assert [len(answer.tokens) for answer in answers] == [300] * 4
            assert fake.secrets | other.secrets <= {OLD, NEW}
            await fake.die()
            await fake.start()
            await why(one, "")
            assert NEW in fake.secrets


async def test_an_old_secret_is_refused_when_its_time_is_over(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(OLD)
    now = 0.0
    shared = Secret(file=str(file), clock=lambda: now)
    fake = FakeTarget(secret=shared)
    async with harness(tmp_path, [fake], target_secret=OLD) as one:
        await one.ask(ask_for())
        file.write_text(NEW)
        await shared.look()
        await fake.die()
        await fake.start()
        await one.ask(ask_for())
        now = OVERLAP_S
        await fake.die()
        await fake.start()
        assert await why(one, "refused key") == "refused key: it does not know the secret of this gateway"


async def test_it_is_told_why_a_pair_is_away(tmp_path: Path) -> None:
    """Each reason in the words of GetStatus, and that a pair which comes back has none."""
    port, *_ = free_ports(1)
    async with harness(tmp_path, [], targets=(f"127.0.0.1:{port}",), model="fake") as one:
        await why(one, "cannot connect")
        for fake, wanted in (
            (FakeTarget(port=port, model="another"), "other model: it serves 'another', not 'fake'"),
            (FakeTarget(port=port, version=7), "wrong protocol version: it speaks 7, this gateway 1"),
            (Older(port=port), "wrong protocol version: expected protocol version 7, got 1"),
            (FakeTarget(port=port, secret=Secret(NEW)), "refused key"),
        ):
            await fake.start()
            await why(one, wanted)
            await fake.die()
        fake = FakeTarget(port=port)
        await fake.start()
        await why(one, "")
        fake.drain()
        await why(one, "draining")
        await fake.die()


async def test_a_target_that_loads_is_not_ready_yet(tmp_path: Path) -> None:
    async with (
        target(tmp_path, grpc="127.0.0.1:0", insecure=True) as address,
        harness(tmp_path, [], targets=(address,)) as one,
    ):
        await why(one, "not ready yet")


class Older(FakeTarget):
    """A target of another version, which refuses this gateway's."""

    async def Session(self, request_iterator: object, context: grpc.aio.ServicerContext[object, object]) -> None:  # type: ignore[override]
        await context.read()
        raise protocol(7, 1)


async def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PacelineError, match="target_secret_file"):
        async with harness(tmp_path, [], targets=("127.0.0.1:1",), target_secret_file=str(tmp_path / "none")):
            pass
