"""A target is told once of each request how much its client got, which is what it may count as emitted."""

import asyncio
import random
from contextlib import suppress
from pathlib import Path

import grpc

from services.common.pb.paceline.v1 import types_pb2
from tests.integration.gateway_stack import Harness, ask_for, harness
from tests.integration.test_gateway_stream import until
from tests.support.fakes_target import FakeTarget
from tests.support.metrics import value_of

REQUESTS = 48


async def one_stream(one: Harness, chance: random.Random) -> None:
    """A request that ends by itself, by a stop string, by its deadline, or by a client that has read enough."""
    kind, tokens = chance.choice(("whole", "string", "deadline", "cancel", "cancel")), chance.randint(1, 120)
    stop = [chance.choice("aeiou")] if kind == "string" else []
    request = ask_for(stopping=types_pb2.Stopping(max_tokens=tokens, stop=stop), seed=chance.getrandbits(16))
    timeout = chance.uniform(0.01, 0.3) if kind == "deadline" else 60.0
    call, got, enough = one.stub.Generate(request, timeout=timeout), 0, chance.randint(0, tokens)
    with suppress(grpc.RpcError, asyncio.CancelledError):
        async for message in call:
            got += len(message.delta.token_ids)
            if kind == "cancel" and got >= enough:
                call.cancel()


def words(target: FakeTarget) -> dict[str, list[int]]:
    """Tokens kept as the gateway told them, by the request's name."""
    told: dict[str, list[int]] = {}
    for word in (*target.cancels, *target.settled):
        told.setdefault(word.request_id, []).append(word.tokens_kept)
    return told


def emitted(target: FakeTarget) -> int:
    """What a target makes of those words."""
    told, total = words(target), 0
    for start in target.starts:
        resumed = len(start.token_ids) - start.prompt_length
        total += min(max(told[start.request_id][0] - resumed, 0), target.committed_of[start.request_id])
    return total


async def test_what_targets_emit_is_what_clients_were_sent(tmp_path: Path, seed: int) -> None:
    """Streams of every ending over three targets, of which one is drained under them: moved ones are told of twice."""
    print(f"seed {seed}")
    chance = random.Random(seed)
    targets = [FakeTarget(f"pair-{number}", pace_s=0.005, slots=64) for number in range(3)]
    async with harness(tmp_path, targets) as one:
        await until(lambda: value_of(one.app.metrics.gateway_ready_targets) == 3)
        for target in targets:
            target.hold(1)
        streams = [asyncio.create_task(one_stream(one, chance)) for _ in range(REQUESTS)]
        await until(lambda: all(target.active for target in targets))
        for target in targets:
            target.go_on()
        targets[0].drain()
        await asyncio.gather(*streams)
        await until(lambda: all(len(words(target)) == len(target.starts) for target in targets))
        assert all(len(kept) == 1 for target in targets for kept in words(target).values())
        assert value_of(one.app.metrics.gateway_migrations["drain"]) > 0
        assert sum(map(emitted, targets)) == value_of(one.app.metrics.gateway_delivered_tokens) > 0


async def test_a_client_that_leaves_behind_a_move_is_told_to_both_targets(tmp_path: Path) -> None:
    """Both targets would else count what the first one committed and the client never got."""
    targets = [FakeTarget(f"pair-{number}", pace_s=0.02, slots=64) for number in range(2)]
    async with harness(tmp_path, targets) as one:
        await until(lambda: value_of(one.app.metrics.gateway_ready_targets) == 2)
        call = one.stub.Generate(ask_for(max_tokens=400), timeout=60.0)
        await until(lambda: any(target.active for target in targets))
        first, second = sorted(targets, key=lambda target: not target.active)
        first.drain()
        with suppress(asyncio.CancelledError):
            async for _ in call:
                if second.active:
                    call.cancel()
        await until(lambda: bool(words(first) and words(second)))
        assert emitted(first) + emitted(second) == value_of(one.app.metrics.gateway_delivered_tokens)
        assert emitted(first) == first.committed, "the client went on to the second one, so it had all of the first"
