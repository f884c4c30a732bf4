"""Tau on held-out prompts, by kind of prompt, with its controls."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch

from models.training.foreign.chain_learning import ChainLearner
from models.training.foreign.conversation import ChatFormat
from models.training.foreign.frozen import FrozenTarget
from models.training.foreign.learning import Learner, Reader
from models.training.foreign.loops import first_repeats
from models.training.foreign.replay import Answer, accepted_table, ask, hits_of, lookup_table, walk, walk_trees
from models.training.foreign.writing import Writing, write

NEW_TOKENS = 256
"""Most tokens of a held-out answer."""
ALL = "all"


@dataclass(frozen=True)
class Prompt:
    """A held-out prompt and its kind."""

    kind: str
    prompt: str


@dataclass(frozen=True)
class Line:
    """Taus over the prompts of a kind.

    `cut` counts answers up to their first repetition only, `alone` drafts that do not depend on the token before. The
    last two are of trees of 8 and 16 rows, the anchor among them; chains have as many rows as are drafted and one more.
    """

    temperature: float
    kind: str
    answers: int
    tokens: int
    tau: float
    cut: float = 0.0
    lookup: float = 0.0
    foreign_features: float = 0.0
    alone: float = 0.0
    nodes_8: float = 0.0
    nodes_16: float = 0.0


Count = tuple[int, int]
"""Rounds and tokens."""


def read_prompts(path: Path) -> list[Prompt]:
    """Read a list of objects with the keys kind and prompt.

    Raises:
        ValueError: the file holds something else.
    """
    try:
        entries = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"--held-out {path}: cannot be read: {error}") from error
    if not (isinstance(entries, list) and entries and all(map(_is_prompt, entries))):
        raise ValueError(f"--held-out {path}: must be a list of objects with kind and prompt, both texts")
    return [Prompt(**entry) for entry in entries]


def _is_prompt(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        and entry.keys() == {"kind", "prompt"}
        and all(isinstance(x, str) for x in entry.values())
    )


def write_answers(
    target: FrozenTarget, chat: ChatFormat, prompts: list[Prompt], temperatures: list[float], tokens: int = NEW_TOKENS
) -> dict[float, list[Answer]]:
    """Let the target answer every prompt at each temperature; one that is given twice brings two answers."""
    begun = chat.prompts([prompt.prompt for prompt in prompts]) * len(temperatures)
    hot = [temperature for temperature in temperatures for _ in prompts]
    length = max(map(len, begun)) + tokens
    ids, ends = write(target, begun, hot, Writing(length, len(begun), target.spec.eos_token_ids), seconds=600.0)
    starts = torch.tensor([len(tokens) for tokens in begun], device=ids.device)
    ends = torch.minimum(ends, starts + tokens)
    repeats = first_repeats(ids, starts, ends).tolist()
    answers: dict[float, list[Answer]] = {temperature: [] for temperature in temperatures}
    for index, (row, end) in enumerate(zip(ids.tolist(), ends.tolist(), strict=True)):
        kind, start = prompts[index % len(prompts)].kind, len(begun[index])
        answers[hot[index]].append(Answer(row[:end], start, kind, min(end, repeats[index])))
    return answers


def measure(learner: Reader, answers: dict[float, list[Answer]], drafts: int, by_kind: bool = True) -> list[Line]:
    """Return a line for each temperature and kind, and one for all kinds; without `by_kind` that one with tau alone."""
    lines = []
    for temperature, given in answers.items():
        kinds = [*dict.fromkeys(answer.kind for answer in given), ALL] if by_kind else [ALL]
        rows = [_counts(learner, given, index, drafts, whole=by_kind) for index in range(len(given))]
        for kind in kinds:
            chosen = [row for row, answer in zip(rows, given, strict=True) if kind in (answer.kind, ALL)]
            sums = {part: [sum(row[part][side] for row in chosen) for side in (0, 1)] for part in rows[0]}
            taus = {part: tokens / max(1, rounds) for part, (rounds, tokens) in sums.items()}
            lines.append(Line(temperature, kind, len(chosen), sums["tau"][1], **taus))
    return lines


def _counts(learner: Reader, answers: list[Answer], index: int, drafts: int, whole: bool) -> dict[str, Count]:
    """Return rounds and tokens of an answer by field of a line."""
    if isinstance(learner, ChainLearner):
        return _counts_of_chain(learner, answers, index, drafts, whole)
    assert isinstance(learner, Learner)
    answer = answers[index]
    start, end = answer.start, len(answer.ids)
    asked = ask(learner, answer, drafts + 1)
    accepted = accepted_table(hits_of(learner, answer, asked))
    counts = {"tau": walk(accepted, start, end)}
    if not whole:
        return counts
    counts["cut"] = walk(accepted, start, max(start + 1, answer.end))
    counts["lookup"] = walk(lookup_table(tuple(answer.ids), start, end, drafts), start, end)
    counts["alone"] = walk(accepted_table(hits_of(learner, answer, asked, alone=True)), start, end)
    other = answers[(index + 1) % len(answers)]
    blind = ask(learner, answer, drafts + 1, learner.features(tuple(other.ids)))
    counts["foreign_features"] = walk(accepted_table(hits_of(learner, answer, blind)), start, end)
    for rows in (8, 16):
        size = min(rows, learner.shape.block_size)
        counts[f"nodes_{rows}"] = walk_trees(learner, answer, ask(learner, answer, size), rows - 1)
    return counts


def _counts_of_chain(
    learner: ChainLearner, answers: list[Answer], index: int, drafts: int, whole: bool
) -> dict[str, Count]:
    """The same of a chain, which makes no trees."""
    answer = answers[index]
    ids, start, end = tuple(answer.ids), answer.start, len(answer.ids)
    accepted = accepted_table(learner.hits(ids, start, drafts))
    counts = {"tau": walk(accepted, start, end)}
    if whole:
        counts["cut"] = walk(accepted, start, max(start + 1, answer.end))
        counts["lookup"] = walk(lookup_table(ids, start, end, drafts), start, end)
        other = learner.features(tuple(answers[(index + 1) % len(answers)].ids))
        counts["foreign_features"] = walk(accepted_table(learner.hits(ids, start, drafts, other)), start, end)
    return counts


def table(lines: list[Line]) -> str:
    """Return the lines as text."""
    head = (
        f"{'T':>4} {'kind':<10} {'answers':>7} {'tokens':>7} {'tau':>6} {'cut':>6} {'alone':>6} {'8 rows':>6} "
        f"{'16':>6} {'lookup':>6} {'foreign':>7}"
    )
    rows = [
        f"{line.temperature:>4} {line.kind:<10} {line.answers:>7} {line.tokens:>7} {line.tau:>6.3f} {line.cut:>6.3f} "
        f"{line.alone:>6.3f} {line.nodes_8:>6.3f} {line.nodes_16:>6.3f} {line.lookup:>6.3f} "
        f"{line.foreign_features:>7.3f}"
        for line in lines
    ]
    return "\n".join([head, *rows])
