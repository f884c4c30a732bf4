"""Holds the size budget: no file over 400 lines, no function over 60, outside kernels and generated code.

A function of the product has at most 15 branches. Conditional expressions, `and`, `or`, walrus and comprehensions count
like `if` and `for`: a function is as hard to read with them.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("paceline", "services", "deploy", "models", "tests")
MOST_FILE_LINES = 400
MOST_FUNCTION_LINES = 60
MOST_BRANCHES = 15
EXEMPT = ("paceline/v1/", "services/common/pb/", "services/common/kernels/")


def sources() -> list[Path]:
    """Every Python file the budget covers."""
    found = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return [path for path in found if not path.relative_to(ROOT).as_posix().startswith(EXEMPT)]


def branches(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Branch points of a function, those of functions within it left out."""
    return sum(_weight(node) for node in _own_nodes(function))


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield child
            yield from _own_nodes(child)


def _weight(node: ast.AST) -> int:
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    if isinstance(node, ast.comprehension):
        return 1 + len(node.ifs)
    one = ast.If | ast.For | ast.AsyncFor | ast.While | ast.ExceptHandler | ast.IfExp | ast.NamedExpr | ast.match_case
    return isinstance(node, one)


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
            count = branches(node)
            if count > MOST_BRANCHES and name.parts[0] != "tests":
                yield f"{name}:{node.lineno}: {node.name} has {count} branches, at most {MOST_BRANCHES}"


def main() -> int:
    """Prints breaches; 1 when there are any."""
    found = [breach for path in sources() for breach in breaches(path)]
    sys.stdout.write("".join(f"{breach}\n" for breach in found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
