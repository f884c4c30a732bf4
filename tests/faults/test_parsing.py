"""Z2: any bytes, parsed and validated in process. Nothing but typed refusals comes out, and memory stays."""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Callable, Iterator

from google.protobuf.message import DecodeError

from services.common.pb.paceline.v1 import inference_pb2, target_pb2
from services.common.request.errors import Code, PacelineError
from services.common.request.validation import Bounds
from services.gateway.grpc import questions
from services.target.sessions.starts import start_from_pb
from tests.faults.answers import request
from tests.faults.conftest import Size
from tests.faults.test_fuzz import wild_request

BOUNDS = Bounds(320, 2048)
GROWN_KIB = 256 * 1024
SHAMEFUL = (Code.INTERNAL, Code.UNKNOWN)


def gateway(data: bytes) -> None:
    questions.query(inference_pb2.GenerateRequest.FromString(data), 256)


def target(data: bytes) -> None:
    frame = target_pb2.SessionRequest.FromString(data)
    if frame.HasField("start"):
        start_from_pb(frame.start, BOUNDS, 256, 600.0, 0.0)


def start_frame(asked: inference_pb2.GenerateRequest) -> bytes:
    start = target_pb2.Start(
        request_id="r", token_ids=asked.prompt.tokens.ids, prompt_length=len(asked.prompt.tokens.ids),
        sampling=asked.sampling, stopping=asked.stopping, speculation=asked.speculation, priority=asked.priority,
    )  # fmt: skip
    return target_pb2.SessionRequest(start=start).SerializeToString()


def mutated(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Bits changed, pieces cut, repeated, exchanged with another message's or made up."""
    made = bytearray(data)
    for _ in range(rng.randint(0, 6)):
        at = rng.randrange(len(made) + 1)
        kind = rng.randrange(5)
        if kind == 0 and at < len(made):
            made[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del made[at : at + rng.randint(1, 8)]
        elif kind == 2:
            made[at:at] = made[at : at + rng.randint(1, 32)]
        elif kind == 3:
            first = rng.randrange(len(other) + 1)
            made[at : at + rng.randint(0, 16)] = other[first : first + rng.randint(1, 32)]
        else:
            made[at:at] = rng.randbytes(rng.randint(1, 8))
    return bytes(made)


def corpus(rng: random.Random) -> Iterator[tuple[Callable[[bytes], None], bytes]]:
    """Endless messages, each for one of the two parsers."""
    while True:
        asked = request(rng.randrange(8), 4) if rng.random() < 0.3 else wild_request(rng)
        one, two = asked.SerializeToString(), start_frame(asked)
        for _ in range(20):
            yield gateway, mutated(rng, one, two)
            yield target, mutated(rng, two, one)


def test_z2_any_bytes_are_parsed_or_refused(
    rng: random.Random, size: Size, report_counts: Callable[[str, int], None]
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    end = time.monotonic() + size(2, 120)
    found = {"valid": 0, "refused": 0, "malformed": 0}
    for parse, data in corpus(rng):
        try:
            parse(data)
            found["valid"] += 1
        except PacelineError as error:
            assert error.code not in SHAMEFUL, data.hex()
            found["refused"] += 1
        except DecodeError:
            found["malformed"] += 1
        if time.monotonic() > end:
            break
    assert min(found.values()) > 0, found
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GROWN_KIB
    report_counts("messages_parsed", sum(found.values()))
