"""Holds the size budget: no file over 400 lines, no function over 60, outside kernels and generated code."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("paceline", "services", "deploy", "models", "tests")
MOST_FILE_LINES = 400
MOST_FUNCTION_LINES = 60
EXEMPT = ("paceline/v1/", "services/common/pb/", "services/common/kernels/")


def sources() -> list[Path]:
    """Every Python file the budget covers."""
    found = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return [path for path in found if not path.relative_to(ROOT).as_posix().startswith(EXEMPT)]


def breaches(path: Path) -> Iterator[str]:
    """One sentence for each breach in a file."""
    text = path.read_text()
    name = path.relative_to(ROOT)
    lines = text.count("\n")
    if lines > MOST_FILE_LINES:
        yield f"{name}: {lines} lines, at most {MOST_FILE_LINES}"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MOST_FUNCTION_LINES:
                yield f"{name}:{node.lineno}: {node.name} has {length} lines, at most {MOST_FUNCTION_LINES}"


def main() -> int:
    """Prints breaches; 1 when there are any."""
    found = [breach for path in sources() for breach in breaches(path)]
    sys.stdout.write("".join(f"{breach}\n" for breach in found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
