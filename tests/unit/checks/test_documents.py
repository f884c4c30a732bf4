"""What the documents say is held against the code and against each other."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def sections(text: str) -> list[str]:
    """Paragraphs and whole lists."""
    return re.split(r"\n\s*\n", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_promise_of_one_text_on_or_off_names_the_dtype_that_does_not_keep_it(page: Path) -> None:
    promises = [part for part in sections(page.read_text()) if re.search(r"\bon\s+or\s+off\b", part)]
    assert all(re.search("bf16|bfloat16", part) for part in promises), promises
