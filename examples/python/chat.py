"""Talks in turns: python -m examples.python.chat [ADDRESS]; an empty line ends it."""

import sys
from collections.abc import Iterator

from examples.python.gateway import ADDRESS, connect
from paceline.v1 import inference_pb2, inference_pb2_grpc, types_pb2


def reply(stub: inference_pb2_grpc.InferenceServiceStub, messages: list[inference_pb2.ChatMessage]) -> Iterator[str]:
    """Yields the pieces of the assistant's next message."""
    request = inference_pb2.GenerateRequest(
        prompt=inference_pb2.Prompt(chat=inference_pb2.Chat(messages=messages)),
        sampling=types_pb2.Sampling(temperature=0.7, top_p=0.9),
        stopping=types_pb2.Stopping(max_tokens=64),
    )
    for message in stub.Generate(request, timeout=120, wait_for_ready=True):
        yield message.delta.text


def main() -> int:
    """Reads lines from standard input and answers each, with all earlier turns in view."""
    address = sys.argv[1] if len(sys.argv) > 1 else ADDRESS
    messages: list[inference_pb2.ChatMessage] = []
    with connect(address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        for line in sys.stdin:
            if not line.strip():
                break
            messages.append(inference_pb2.ChatMessage(role="user", content=line.strip()))
            answer = ""
            for piece in reply(stub, messages):
                print(piece, end="", flush=True)
                answer += piece
            print()
            messages.append(inference_pb2.ChatMessage(role="assistant", content=answer))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
