"""Tables of what was measured: files that are none are named, and every entry is a cut that its engine takes."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from services.common.kernels.linear.cuda import Kind
from services.common.kernels.tables import CUTS, Entry, TableError, cuts, parsed, table, text_of

HEAD = '{"gpu": "a", "entries": ['
ENTRY = '{"engine": "tiles", "lines": 8, "depth": 64, "kind": "plain", "format": "bf16", "rows": 96, "cut": null'


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", '{"entries": []}', f'{HEAD}{ENTRY}, "more": 1}}]}}', HEAD + '{"engine": "tiles"}]}',
        f'{HEAD}{ENTRY}}}]}}'.replace("tiles", "other"), f'{HEAD}{ENTRY}}}]}}'.replace("96", "0"),
        f'{HEAD}{ENTRY}}}]}}'.replace("96", '"96"'),
    ],
)  # fmt: skip
def test_what_is_no_table_is_named(text: str) -> None:
    with pytest.raises(TableError, match=r"^own\.json: "):
        parsed(text, "own.json")


def test_the_file_is_as_it_is_written() -> None:
    assert text_of(table()) == CUTS.read_text()


def test_no_product_stands_twice() -> None:
    products = [entry._replace(cut=None) for entry in table().entries]
    assert len(set(products)) == len(products)


def test_no_entry_says_what_follows_without_it() -> None:
    """What the next one of its product says, or nothing where none is left: the library serves what no entry has."""
    products: dict[tuple[object, ...], list[Entry]] = {}
    for entry in (*cuts("tiles"), *cuts("tiles", "int8")):
        products.setdefault((entry.lines, entry.depth, entry.kind, entry.format), []).append(entry)
    for found in products.values():
        found.sort(key=lambda entry: entry.rows)
        alike = [one for one, behind in pairwise(found) if one.cut == behind.cut]
        assert not alike and found[-1].cut is not None, found


def test_engines_have_entries_of_what_may_follow() -> None:
    kinds = {kind.name.lower() for kind in Kind}
    for engine, weights in (("bands", "bf16"), ("tiles", "bf16"), ("tiles", "int8")):
        found = list(cuts(engine, weights))
        assert found and {entry.kind for entry in found} <= kinds


def test_no_shape_of_a_weight_stands_in_python() -> None:
    shapes = re.compile(r"\(\s*\d[\d_]{3,},\s*\d[\d_]{3,}")
    found = [path.name for path in CUTS.parents[1].rglob("*.py") if shapes.search(path.read_text())]
    assert found == []
