"""Reads errors: python -m examples.python.errors [ADDRESS].

Every refusal is a gRPC status with google.rpc details: ErrorInfo.reason is stable and meant for programs, the message
is for people, BadRequest names the field, RetryInfo tells when the same call may succeed.
"""

import sys
from dataclasses import dataclass

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from examples.python.gateway import ADDRESS, connect
from paceline.v1 import inference_pb2, inference_pb2_grpc, types_pb2


@dataclass(frozen=True)
class Refusal:
    """What a failed call tells; `retry_after_s` is None when retrying does not help."""

    code: grpc.StatusCode
    reason: str
    field: str
    message: str
    retry_after_s: float | None


def refusal(error: grpc.RpcError) -> Refusal:
    """The details of a failed call; empty ones when it failed before it reached paceline."""
    reason, field, retry_after_s = "", "", None
    status = rpc_status.from_call(error)
    for detail in status.details if status is not None else ():
        info, bad, retry = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
        if detail.Unpack(info):
            reason = info.reason
        elif detail.Unpack(bad):
            field = bad.field_violations[0].field
        elif detail.Unpack(retry):
            retry_after_s = retry.retry_delay.ToTimedelta().total_seconds()
    return Refusal(error.code(), reason, field, error.details() or "", retry_after_s)


def bad_requests() -> dict[str, inference_pb2.GenerateRequest]:
    """Requests that no server accepts."""
    text = inference_pb2.Prompt(text="x = 1")
    return {
        "temperature out of range": inference_pb2.GenerateRequest(
            prompt=text, sampling=types_pb2.Sampling(temperature=9.0)
        ),
        "empty prompt": inference_pb2.GenerateRequest(prompt=inference_pb2.Prompt(text="")),
        "unknown model": inference_pb2.GenerateRequest(prompt=text, model="no-such-model"),
        "option not built": inference_pb2.GenerateRequest(prompt=text, constraint="[0-9]+"),
    }


def main() -> int:
    """Sends each bad request and prints how it is refused."""
    address = sys.argv[1] if len(sys.argv) > 1 else ADDRESS
    with connect(address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        for name, request in bad_requests().items():
            try:
                for _ in stub.Generate(request, timeout=60, wait_for_ready=True):
                    pass
            except grpc.RpcError as error:
                found = refusal(error)
                print(f"{name}: {found.code.name} {found.reason} field={found.field or '-'}: {found.message}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
