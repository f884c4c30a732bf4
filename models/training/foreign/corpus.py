"""The training text: prompts, most of them by the target itself, and the target's answers to them."""

import random
import re
import time
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError

import torch
from torch import Tensor

from models.training.foreign.conversation import ChatFormat
from models.training.foreign.frozen import FrozenTarget
from models.training.foreign.loops import first_repeats
from models.training.foreign.openings import draw_opening
from models.training.foreign.writing import Writing, write

WORDS_ALIKE = 7
"""A prompt that shares a run of as many words with a held-out one is dropped."""
LONGEST_MESSAGE = 160
"""Tokens of a prompt by the target."""
AFTER_LOOP = 48
"""Tokens kept of an answer that repeats itself."""
SHORTEST_ANSWER = 4
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class CorpusOptions:
    """How much the target writes, in seconds and in conversations, and how it draws.

    Answers are drawn at `temperature` but for a share of greedy ones.
    """

    seconds: float
    conversations: int
    slots: int
    length: int = 512
    greedy_share: float = 0.35
    temperature: float = 0.8
    message_share: float = 0.15
    min_p: float = 0.02
    seed: int = 1
    compiled: bool = False


@dataclass(frozen=True)
class Conversations:
    """Texts [count, length] of `ends` tokens, the answers from `starts` on, and which were written greedily [count]."""

    ids: Tensor
    starts: Tensor
    ends: Tensor
    greedy: Tensor

    @property
    def tokens(self) -> int:
        """How many there are in all."""
        return int(self.ends.sum())


def kept_text(path: Path, device: torch.device) -> Conversations:
    """Read what an earlier run kept.

    Raises:
        ValueError: the file holds something else.
    """
    try:
        return Conversations(**torch.load(path, map_location=device))
    except (UnpicklingError, RuntimeError, TypeError, EOFError, KeyError) as error:
        raise ValueError(f"--corpus {path}: is no text that a run kept: remove it, or name another") from error


def write_corpus(
    target: FrozenTarget, chat: ChatFormat, stops: tuple[int, ...], held_out: list[str], options: CorpusOptions
) -> Conversations:
    """Let the target write until the seconds are spent or the conversations are there."""
    started = time.monotonic()
    prompts = _prompts(target, chat, stops, held_out, options)
    left = options.seconds - (time.monotonic() - started)
    longest = options.length - SHORTEST_ANSWER
    begun = [ids for ids in chat.prompts(prompts) if len(ids) <= min(longest, options.length * 3 // 4)]
    if not begun:
        raise ValueError(
            f"no prompt fits into --length {options.length} or was written: give it, or --data-seconds, more"
        )
    greedy = [index % 100 < 100 * options.greedy_share for index in range(len(begun))]
    temperatures = [0.0 if flat else options.temperature for flat in greedy]
    ids, ends = write(
        target, begun, temperatures, Writing(options.length, options.slots, stops), left, options.compiled
    )
    starts = torch.tensor([len(prompt) for prompt in begun], device=ids.device)
    ends = torch.minimum(ends, first_repeats(ids, starts, ends) + AFTER_LOOP)
    kept = ends - starts >= SHORTEST_ANSWER
    flat = torch.tensor(greedy, device=ids.device)
    texts = Conversations(ids[kept], starts[kept], ends[kept], flat[kept])
    answers, count = int((texts.ends - texts.starts).sum()), len(texts.ids)
    print(f"corpus: {count} conversations, {texts.tokens} tokens, {answers} of them in answers", flush=True)
    return texts


def _prompts(
    target: FrozenTarget, chat: ChatFormat, stops: tuple[int, ...], held_out: list[str], options: CorpusOptions
) -> list[str]:
    """Return different prompts, none like a held-out one; those that are not whole the target goes on with."""
    chooser = random.Random(options.seed)
    openings = [draw_opening(chooser) for _ in range(options.conversations)]
    begun = chat.begin([opening.text for opening in openings if not opening.whole])
    length = max(map(len, begun), default=0) + LONGEST_MESSAGE
    how = Writing(length, options.slots, (*stops, chat.message_end), options.min_p)
    written: list[list[int]] = []
    if begun:
        seconds = options.seconds * options.message_share
        ids, ends = write(target, begun, [1.0] * len(begun), how, seconds, options.compiled)
        written = [row[:end] for row, end in zip(ids.tolist(), ends.tolist(), strict=True) if 0 < end < length]
    prompts = [*(opening.text for opening in openings if opening.whole), *chat.messages(written)]
    prompts = distinct(prompts, held_out)
    chooser.shuffle(prompts)
    print(f"prompts: {len(prompts)} of {len(openings)} kept", flush=True)
    return prompts


def distinct(prompts: list[str], held_out: list[str]) -> list[str]:
    """Return prompts once each, without empty ones and those like a held-out one."""
    runs = {run for prompt in held_out for run in _runs(prompt)}
    seen: set[tuple[str, ...]] = set()
    kept: list[str] = []
    for prompt in map(str.strip, prompts):
        words = tuple(_WORD.findall(prompt.lower()))
        if words and words not in seen and runs.isdisjoint(_runs(prompt)):
            seen.add(words)
            kept.append(prompt)
    return kept


def _runs(prompt: str) -> set[tuple[str, ...]]:
    """Return all runs of words, or all words of a short prompt."""
    words = _WORD.findall(prompt.lower())
    return {tuple(words[at : at + WORDS_ALIKE]) for at in range(max(1, len(words) - WORDS_ALIKE + 1))}
