"""Texts of the embedded pair through a gateway, and whether they are those that it wrote with speculation off."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from deploy.stack import EMBEDDED
from paceline import Answer, AsyncClient, Options, PacelineError

CUT = 8
"""Characters by which a prompt is shortened each time that it is taken again."""


@dataclass(frozen=True, order=True)
class Asked:
    """One stream: a prompt by its number, which is also the seed."""

    number: int
    temperature: float


def prompts(count: int) -> list[str]:
    """Held-out texts, no two alike."""
    texts = json.loads((EMBEDDED / "heldout_prompts.json").read_text())
    every = [text[: len(text) - CUT * times] for times in range(-(-count // len(texts))) for text in texts]
    assert len(set(every)) == len(every)
    return every[:count]


class Writer:
    """Asks a gateway for texts of a fixed length."""

    def __init__(self, client: AsyncClient, count: int, tokens: int) -> None:
        """`count` is how many prompts there are."""
        self._client, self._prompts, self._tokens = client, prompts(count), tokens

    async def one(self, asked: Asked, speculation: bool = True) -> Answer:
        """One whole answer."""
        options = Options(
            max_tokens=self._tokens,
            temperature=asked.temperature,
            seed=asked.number,
            speculation=speculation,
            ignore_eos=True,
        )
        return await self._client.generate(self._prompts[asked.number], options)

    async def all(self, asked: Sequence[Asked], at_once: int, speculation: bool) -> list[Answer]:
        """Many, some of them at a time."""
        room = asyncio.Semaphore(at_once)

        async def waited(each: Asked) -> Answer:
            async with room:
                return await self.one(each, speculation)

        return list(await asyncio.gather(*(waited(each) for each in asked)))


class Traffic:
    """Streams without end, each compared with its text before the first kill."""

    def __init__(self, writer: Writer, truth: dict[Asked, list[int]]) -> None:
        self._writer, self._truth = writer, truth
        self.counts: Counter[str] = Counter()
        self.said: set[str] = set()
        self.over = False

    async def run(self, number: int) -> None:
        """One client, which goes on until `over`."""
        dice, every = random.Random(number), sorted(self._truth)
        while not self.over:
            asked = dice.choice(every)
            self.counts["streams"] += 1
            try:
                answer = await self._writer.one(asked)
            except PacelineError as error:
                self.counts["errors"] += 1
                self.said.add(str(error)[:200])
                continue
            self.counts["differ"] += answer.tokens != self._truth[asked]
            self.counts["migrated"] += answer.migrations > 0
            self.counts["other_numerics"] += answer.numerics_changed
