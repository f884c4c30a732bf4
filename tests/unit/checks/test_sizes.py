"""What the size budget counts as a branch."""

import ast

import pytest

from tests.checks.sizes import branches


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("return 1", 0),
        ("if a:\n  return 1\nelif b:\n  return 2", 2),
        ("return 1 if a else 2", 1),
        ("return a and b and c", 2),
        ("if (x := f()) or y:\n  pass", 3),
        ("return [x for x in y if x if z]", 3),
        ("try:\n  f()\nexcept A:\n  pass\nexcept B:\n  pass", 2),
        ("match a:\n  case 1:\n    pass\n  case _:\n    pass", 2),
        ("def inner():\n  if a:\n    pass\nreturn inner", 0),
    ],
)
def test_what_hides_in_an_expression_counts_like_a_statement(body: str, count: int) -> None:
    source = "def f():\n" + "\n".join(f"  {line}" for line in body.split("\n"))
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    assert branches(function) == count
