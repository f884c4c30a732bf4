"""What a run did and what came of it, as a page beside the drafter: written anew at every report."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from models.training.foreign.heldout import Line
from models.training.foreign.publish import CARD, NUMBERS


@dataclass
class Card:
    """Facts by name, the curve by seconds of training, and lines of tau by drafter."""

    facts: dict[str, object]
    curve: list[dict[str, float]] = field(default_factory=list)
    taus: dict[str, Sequence[Line]] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write the page, and its numbers as JSON."""
        folder.mkdir(parents=True, exist_ok=True)
        told = {"facts": self.facts, "curve": self.curve}
        numbers = told | {"taus": {name: [asdict(line) for line in lines] for name, lines in self.taus.items()}}
        (folder / NUMBERS).write_text(json.dumps(numbers, indent=1) + "\n", "utf-8")
        (folder / CARD).write_text(self.page(), "utf-8")

    def page(self) -> str:
        """Return the page as Markdown."""
        facts = [[name, str(value)] for name, value in self.facts.items()]
        parts = ["# A drafter", grid(["what", "value"], facts)]
        for name, lines in self.taus.items():
            parts += [f"Tau of {name} by replayed rounds:", tau_grid(lines)]
        if self.curve:
            head = list(self.curve[0])
            rows = [[str(point.get(name, "")) for name in head] for point in self.curve]
            parts += ["Tau while it learnt:", grid(head, rows)]
        return "\n\n".join(parts) + "\n"


def tau_grid(lines: Sequence[Line]) -> str:
    """Return lines as a table."""
    head = ["temperature", "kind", "tokens", "chain", "cut", "alone", "8 rows", "16 rows", "lookup", "foreign"]
    rows = [
        [str(line.temperature), line.kind, str(line.tokens)]
        + [f"{value:.2f}" for value in (line.tau, line.cut, line.alone, line.nodes_8, line.nodes_16, line.lookup,
                                        line.foreign_features)]
        for line in lines
    ]  # fmt: skip
    return grid(head, rows)


def grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))
