"""Takes what fits into a time: python -m examples.python.deadline [ADDRESS] [SECONDS].

The field `timeout` ends the stream in good order with the text so far and FINISH_REASON_DEADLINE. The RPC's own
deadline is the last resort: it ends the call with DEADLINE_EXCEEDED, so let it be the longer of the two.
"""

import sys

import grpc
from google.protobuf.duration_pb2 import Duration

from examples.python.gateway import ADDRESS, connect
from paceline.v1 import inference_pb2, inference_pb2_grpc, types_pb2


def main() -> int:
    """Generates for at most SECONDS."""
    address = sys.argv[1] if len(sys.argv) > 1 else ADDRESS
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 0.5
    request = inference_pb2.GenerateRequest(
        prompt=inference_pb2.Prompt(text="class Node:"),
        stopping=types_pb2.Stopping(max_tokens=1000, ignore_eos=True),
        timeout=Duration(nanos=int(seconds % 1 * 1e9), seconds=int(seconds)),
    )
    tokens = 0
    with connect(address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        try:
            for message in stub.Generate(request, timeout=seconds + 5, wait_for_ready=True):
                tokens += len(message.delta.token_ids)
                if message.HasField("final"):
                    print(f"{types_pb2.FinishReason.Name(message.final.finish_reason)} after {tokens} tokens")
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                raise
            print("no token came in time")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
