"""python -m deploy.helm.values [--check]: writes what settings say above the values that are passed to them.

A comment that ends with a flag in brackets is made here. What a person adds stands below it. A comment without a flag
is a person's alone and stays.
"""

import argparse
import re
import sys
import textwrap
from pathlib import Path

from deploy.cluster.settings import ClusterSettings
from services.common.serving.settings_help import sentences
from services.gateway.settings import GatewaySettings

CHART = Path(__file__).parent / "paceline"
VALUES = CHART / "values.yaml"
FLAG = re.compile(r" \[--[a-z-]+\]")
# `- --flag={{ .Values.path }}`, or `- {{ printf "--flag=%s" .Values.path | include "paceline.argument" }}` for texts.
_PASSED = re.compile(r"^- (?:\{\{ printf \")?--([a-z-]+)=(?:\{\{|%s\") \.Values\.([\w.]+) (?:\||\}\})", re.MULTILINE)
_WIDTH = 120


def passed_on() -> dict[str, str]:
    """What settings say of the values that templates pass to them unchanged, with the flag in brackets, by path."""
    said = {}
    for template, cls in (("_gateway.tpl", GatewaySettings), ("_worker.tpl", ClusterSettings)):
        source, meaning = (CHART / "templates" / template).read_text(), sentences(cls)
        for flag, path in _PASSED.findall(source):
            said[path] = f"{meaning[flag.replace('-', '_')]} [--{flag}]"
    return said


def text() -> str:
    """The values, each that is passed on below what its setting says."""
    said, path, comment, lines = passed_on(), list[str](), list[str](), list[str]()
    for line in VALUES.read_text().splitlines():
        if line.lstrip().startswith("#"):
            comment.append(line)
            continue
        name, separator, _ = line.strip().partition(":")
        if separator:
            path = [*path[: (len(line) - len(line.lstrip())) // 2], name]
            comment = _renewed(comment, said.get(".".join(path), ""), line[: -len(line.lstrip())])
        lines += [*comment, line]
        comment = []
    return "\n".join(lines) + "\n"


def _renewed(comment: list[str], sentence: str, indent: str) -> list[str]:
    """A comment with the sentence in place of the one of an earlier run; a person's alone stays as it is."""
    made = next((number for number, line in enumerate(comment, start=1) if FLAG.search(line)), 0)
    if not sentence or (comment and not made):
        return comment
    wrapped = textwrap.wrap(sentence, _WIDTH - len(indent) - 2, break_on_hyphens=False)
    return [f"{indent}# {line}" for line in wrapped] + comment[made:]


def main() -> int:
    """1 when asked to check and the comments are stale."""
    parser = argparse.ArgumentParser(prog="python -m deploy.helm.values", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the comments are old")
    if not parser.parse_args().check:
        VALUES.write_text(text())
    elif VALUES.read_text() != text():
        sys.stdout.write("the chart's values are stale: python -m deploy.helm.values\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
