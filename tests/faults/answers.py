"""Requests that are the same every time, and what their streams gave."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import grpc

from services.common.pb.paceline.v1 import inference_pb2, types_pb2
from tests.support.pace import within_s

ENOUGH = 3


@dataclass
class Answer:
    """What one stream gave; positions must follow on one another. `last` is when news or the end came."""

    tokens: list[int] = field(default_factory=list)
    text: str = ""
    final: inference_pb2.Final | None = None
    code: grpc.StatusCode = grpc.StatusCode.OK
    words: str = ""
    longest_gap_s: float = 0.0
    last: float = 0.0

    def take(self, response: inference_pb2.GenerateResponse) -> None:
        """Adds a message."""
        assert self.final is None, "nothing follows the end"
        now = time.monotonic()
        self.longest_gap_s = max(self.longest_gap_s, now - self.last if self.last else 0.0)
        self.last = now
        if response.HasField("final"):
            self.final = response.final
            return
        assert response.delta.position == len(self.tokens), "each position once, in order"
        self.tokens += response.delta.token_ids
        self.text += response.delta.text


@dataclass
class Stream:
    """A stream that is being read."""

    answer: Answer
    task: asyncio.Task[Answer]


def request(number: int, tokens: int, *, off: bool = False) -> inference_pb2.GenerateRequest:
    """Request ``number``: greedy or sampled, with a prompt of its own length; the same every time."""
    ids = [2 + (number * 7919 + index * 104_729) % 318 for index in range(5 + number * 13 % 90)]
    sampling = types_pb2.Sampling(temperature=0.8 * (number % 2), top_p=0.95, seed=1000 + number)
    return inference_pb2.GenerateRequest(
        prompt=inference_pb2.Prompt(tokens=types_pb2.TokenIds(ids=ids)),
        sampling=sampling,
        stopping=types_pb2.Stopping(max_tokens=tokens, ignore_eos=True),
        speculation=types_pb2.Speculation(off=off),
    )


def same(answer: Answer, expected: Answer) -> bool:
    """Same tokens, same text, ended well."""
    assert answer.code is grpc.StatusCode.OK, answer.code
    assert answer.final is not None
    return answer.tokens == expected.tokens and answer.text == expected.text


def migrations(answers: Sequence[Answer]) -> int:
    """How often these streams moved."""
    return sum(answer.final.usage.migrations for answer in answers if answer.final is not None)


def judge(times_s: Sequence[float], bar_s: float) -> None:
    """None over three times the bar, and the median within it where there are enough trials for one.

    A few trials stand beside other tests: then what starting a process takes this machine now counts, too.
    """
    few, most_s = len(times_s) < ENOUGH, 3 * bar_s
    assert max(times_s) <= most_s or (few and max(times_s) <= within_s(most_s)), times_s
    assert few or statistics.median(times_s) <= bar_s, times_s
