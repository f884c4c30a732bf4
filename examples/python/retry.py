"""Retries what may be retried: python -m examples.python.retry [ADDRESS].

Safe to repeat are UNAVAILABLE and RESOURCE_EXHAUSTED before the first token; an idempotency key keeps a repeat from
running twice. A stream that has begun needs no retry: the gateway itself moves it to another target.
"""

import random
import sys
import time
import uuid

import grpc

from examples.python.errors import refusal
from examples.python.gateway import ADDRESS, connect
from paceline.v1 import inference_pb2, inference_pb2_grpc, types_pb2

AGAIN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)
ATTEMPTS = 6


def generate(stub: inference_pb2_grpc.InferenceServiceStub, request: inference_pb2.GenerateRequest) -> str:
    """The whole text.

    Raises:
        grpc.RpcError: it failed for good, or after some text had come.
    """
    for attempt in range(ATTEMPTS):
        text = ""
        try:
            for message in stub.Generate(request, timeout=120):
                text += message.delta.text
            return text
        except grpc.RpcError as error:
            found = refusal(error)
            if text or found.code not in AGAIN or attempt == ATTEMPTS - 1:
                raise
            pause_s = found.retry_after_s or 0.2 * 2**attempt
            print(f"{found.code.name} {found.reason}: again in {pause_s:.1f} s", file=sys.stderr)
            time.sleep(pause_s * random.uniform(1.0, 1.5))
    raise AssertionError("the last attempt returns or raises")


def main() -> int:
    """Generates one text under a key of its own."""
    address = sys.argv[1] if len(sys.argv) > 1 else ADDRESS
    request = inference_pb2.GenerateRequest(
        prompt=inference_pb2.Prompt(text="def add(a, b):"),
        stopping=types_pb2.Stopping(max_tokens=24),
        idempotency_key=uuid.uuid4().hex,
    )
    with connect(address) as channel:
        print(generate(inference_pb2_grpc.InferenceServiceStub(channel), request))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
