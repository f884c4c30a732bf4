"""Tau on held-out prompts, by kind of prompt, with its controls."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from models.training.foreign.conversation import ChatFormat
from models.training.foreign.frozen import FrozenTarget
from models.training.foreign.learning import Learner
from models.training.foreign.loops import first_repeats
from models.training.foreign.replay import Answer, accepted_table, hits_of, lookup_table, walk
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
    """Taus over the prompts of a kind; `cut` counts answers up to their first repetition only."""

    temperature: float
    kind: str
    answers: int
    tokens: int
    tau: float
    cut: float
    lookup: float
    foreign_features: float


def read_prompts(path: Path) -> list[Prompt]:
    """Read a list of objects with the keys kind and prompt."""
    return [Prompt(**entry) for entry in json.loads(path.read_text("utf-8"))]


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


def measure(learner: Learner, answers: dict[float, list[Answer]], drafts: int, by_kind: bool = True) -> list[Line]:
    """Return a line for each temperature and kind, and one for all kinds."""
    lines = []
    for temperature, given in answers.items():
        kinds = [*dict.fromkeys(answer.kind for answer in given), ALL] if by_kind else [ALL]
        rows = [_rows(learner, given, index, drafts, controls=by_kind) for index in range(len(given))]
        for kind in kinds:
            chosen = [row for row, answer in zip(rows, given, strict=True) if kind in (answer.kind, ALL)]
            sums = [[sum(row[part][side] for row in chosen) for side in (0, 1)] for part in range(4)]
            taus = [tokens / max(1, rounds) for rounds, tokens in sums]
            lines.append(Line(temperature, kind, len(chosen), sums[0][1], *taus))
    return lines


def _rows(
    learner: Learner, answers: list[Answer], index: int, drafts: int, controls: bool
) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int], tuple[int, int]]:
    """Return rounds and tokens of an answer: drafted, drafted until it repeats, looked up, with another's features."""
    answer = answers[index]
    start, end = answer.start, len(answer.ids)
    table = accepted_table(hits_of(learner, answer, drafts + 1))
    own, cut = walk(table, start, end), walk(table, start, max(start + 1, answer.end))
    if not controls:
        return own, cut, (0, 0), (0, 0)
    looked_up = walk(lookup_table(answer.ids, start, end, drafts), start, end)
    other = torch.tensor(answers[(index + 1) % len(answers)].ids, device=learner.target.device)
    features = learner.features(other)
    blind = walk(accepted_table(hits_of(learner, answer, drafts + 1, features)), start, end)
    return own, cut, looked_up, blind


def table(lines: list[Line]) -> str:
    """Return the lines as text."""
    head = f"{'T':>4} {'kind':<10} {'answers':>7} {'tokens':>7} {'tau':>6} {'cut':>6} {'lookup':>6} {'foreign':>7}"
    rows = [
        f"{line.temperature:>4} {line.kind:<10} {line.answers:>7} {line.tokens:>7} {line.tau:>6.3f} {line.cut:>6.3f} "
        f"{line.lookup:>6.3f} {line.foreign_features:>7.3f}"
        for line in lines
    ]
    return "\n".join([head, *rows])


def save(lines: list[Line], path: Path) -> None:
    """Write the lines as JSON."""
    path.write_text(json.dumps([asdict(line) for line in lines], indent=1) + "\n", "utf-8")
