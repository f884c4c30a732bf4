"""Held-out prompts: a few lines of source from files that no training stage has read."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from models.training.corpus import Source

SHORTEST, LONGEST = 24, 60


@dataclass(frozen=True)
class Prompt:
    """A prompt and the held-out file it was cut from."""

    text: str
    path: str


def choose_prompts(tokenizer: Tokenizer, sources: Sequence[Source], count: int, seed: int) -> list[Prompt]:
    """Draw prompts at random line starts, spread over the held-out files."""
    chooser = random.Random(seed)
    prompts: list[Prompt] = []
    shuffled = chooser.sample(list(sources), len(sources))
    while len(prompts) < count:
        source = shuffled[len(prompts) % len(shuffled)]
        text = _draw(tokenizer, source, chooser)
        if text is None:
            shuffled.remove(source)
        else:
            prompts.append(Prompt(text, source.path))
    return prompts


def save_prompts(prompts: Sequence[Prompt], folder: Path) -> None:
    """Write the texts as a JSON list and, in the same order, the files they come from."""
    _write(folder / "heldout_prompts.json", [prompt.text for prompt in prompts])
    _write(folder / "heldout_sources.json", [prompt.path for prompt in prompts])


def _draw(tokenizer: Tokenizer, source: Source, chooser: random.Random) -> str | None:
    lines = source.text.splitlines()
    for _ in range(50):
        first = chooser.randrange(len(lines))
        for last in range(first + 1, len(lines) + 1):
            text = "\n".join(lines[first:last]).strip("\n").rstrip()
            tokens = len(tokenizer.encode(text).ids)
            if tokens > LONGEST:
                break
            if tokens >= chooser.randint(SHORTEST, LONGEST):
                return text
    return None


def _write(path: Path, values: list[str]) -> None:
    path.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
