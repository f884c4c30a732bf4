"""python -m deploy.helm.readme [--check]: writes the table of values into the chart's README, or says it is old."""

import argparse
import sys
from collections.abc import Iterator

import yaml

from deploy.helm.values import CHART, FLAG, VALUES

MARK = "<!-- Below: made from values.yaml by python -m deploy.helm.readme -->\n"


def rows(text: str) -> Iterator[tuple[str, str, str]]:
    """(path, default, meaning) of every value; the comment above a value or its group explains it."""
    path: list[str] = []
    comment: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("#"):
            comment.append(stripped.removeprefix("# "))
            continue
        name, separator, value = stripped.partition(":")
        if not separator:
            comment = []
            continue
        path = [*path[: (len(line) - len(line.lstrip())) // 2], name]
        if value.strip():
            yield ".".join(path), _default(value.strip()), " ".join(comment)
            comment = []


def _default(value: str) -> str:
    return "" if yaml.safe_load(value) in ("", [], {}) else f"`{value}`"


def page() -> str:
    """The README: what a person wrote above the mark, the table below it."""
    written = (CHART / "README.md").read_text().partition(MARK)[0]
    table = [
        f"| `{path}` | {default} | {FLAG.sub('', meaning)} |" for path, default, meaning in rows(VALUES.read_text())
    ]
    return "\n".join([written + MARK, "| value | default | meaning |", "|---|---|---|", *table]) + "\n"


def main() -> int:
    """1 when asked to check and the page is stale."""
    parser = argparse.ArgumentParser(prog="python -m deploy.helm.readme", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the table is old")
    text, path = page(), CHART / "README.md"
    if not parser.parse_args().check:
        path.write_text(text)
    elif path.read_text() != text:
        sys.stdout.write("the chart's README is stale: python -m deploy.helm.readme\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
