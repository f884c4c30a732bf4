"""`python -m tests.integration.stranger UID KIND ADDRESS SECRET`: as another user, tries to use a target or a drafter.

Prints a line of JSON: the status of the call, and how many tokens it got. Everything is imported before the change of
user, who may be unable to read it.
"""

import json
import os
import sys
import threading
from collections.abc import Iterator

import grpc

from services.common.pb.paceline.v1 import drafter_pb2, drafter_pb2_grpc, target_pb2, target_pb2_grpc, types_pb2
from services.common.serving.channel import connect_sync

WAIT_S = 10.0


def main() -> None:
    """Tries once."""
    uid, kind, address, secret = sys.argv[1:]
    if os.getuid() != int(uid):
        os.setgroups([])
        os.setgid(int(uid))
        os.setuid(int(uid))
    tokens, status = 0, grpc.StatusCode.OK
    try:
        tokens = generate(address, secret) if kind == "target" else describe(address)
    except grpc.RpcError as error:
        status = error.code()
    print(json.dumps({"status": status.name, "tokens": tokens}))


def generate(address: str, secret: str) -> int:
    """Hello and Start as a gateway says them; the number of tokens received."""
    hello = target_pb2.Hello(protocol_version=1, gateway_id="stranger", secret=secret)
    stopping = types_pb2.Stopping(max_tokens=4, ignore_eos=True)
    start = target_pb2.Start(request_id="r", token_ids=[5, 6, 7], prompt_length=3, stopping=stopping, tenant="a")
    frames = [target_pb2.SessionRequest(hello=hello), target_pb2.SessionRequest(start=start)]
    tokens = 0
    with connect_sync(address) as channel:
        call = target_pb2_grpc.TargetServiceStub(channel).Session(_open(frames), timeout=WAIT_S)
        for frame in call:
            for update in frame.round.updates:
                tokens += len(update.token_ids)
                if update.HasField("end"):
                    return tokens
    return tokens


def describe(address: str) -> int:
    """Asks a drafter for its state; any answer means that it may be used."""
    request = drafter_pb2.DrafterServiceDescribeRequest(protocol_version=1)
    with connect_sync(address) as channel:
        drafter_pb2_grpc.DrafterServiceStub(channel).Describe(request, timeout=WAIT_S)
    return 0


def _open(frames: list[target_pb2.SessionRequest]) -> Iterator[target_pb2.SessionRequest]:
    """The frames, and then a stream that stays open."""
    yield from frames
    threading.Event().wait(WAIT_S)


if __name__ == "__main__":
    main()
