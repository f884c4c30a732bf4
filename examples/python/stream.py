"""Streams one completion: python -m examples.python.stream [ADDRESS] [PROMPT]."""

import sys

from examples.python.gateway import ADDRESS, connect
from paceline.v1 import inference_pb2, inference_pb2_grpc, types_pb2


def main() -> int:
    """Prints text as it becomes final, then what speculation did."""
    address = sys.argv[1] if len(sys.argv) > 1 else ADDRESS
    prompt = sys.argv[2] if len(sys.argv) > 2 else "def main():"
    request = inference_pb2.GenerateRequest(
        prompt=inference_pb2.Prompt(text=prompt),
        sampling=types_pb2.Sampling(temperature=0.8, seed=1),
        stopping=types_pb2.Stopping(max_tokens=48),
    )
    with connect(address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        for message in stub.Generate(request, timeout=120, wait_for_ready=True):
            if message.HasField("delta"):
                print(message.delta.text, end="", flush=True)
            else:
                report(message.final)
    return 0


def report(final: inference_pb2.Final) -> None:
    """Prints the end of a stream."""
    speculation = final.speculation
    rounds = max(1, speculation.rounds)
    print(f"\n[{types_pb2.FinishReason.Name(final.finish_reason)}, seed {final.seed}]")
    print(
        f"[{final.usage.completion_tokens} tokens in {speculation.rounds} rounds,"
        f" {speculation.accepted / rounds:.1f} drafts accepted per round]"
    )


if __name__ == "__main__":
    raise SystemExit(main())
