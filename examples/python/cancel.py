"""Stops a stream in the middle: python -m examples.python.cancel [ADDRESS].

Cancelling frees the request's memory within two rounds; leaving the loop without cancelling would not.
"""

import sys

import grpc

from examples.python.gateway import ADDRESS, connect
from paceline.v1 import inference_pb2, inference_pb2_grpc, types_pb2

ENOUGH = 16


def main() -> int:
    """Cancels once enough tokens have come."""
    address = sys.argv[1] if len(sys.argv) > 1 else ADDRESS
    request = inference_pb2.GenerateRequest(
        prompt=inference_pb2.Prompt(text="import os"),
        stopping=types_pb2.Stopping(max_tokens=400, ignore_eos=True),
    )
    received = 0
    with connect(address) as channel:
        stream = inference_pb2_grpc.InferenceServiceStub(channel).Generate(request, timeout=120, wait_for_ready=True)
        try:
            for message in stream:
                received += len(message.delta.token_ids)
                if received >= ENOUGH:
                    stream.cancel()
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.CANCELLED:
                raise
    print(f"cancelled after {received} tokens")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
