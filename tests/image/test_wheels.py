"""Wheels that are kept for the next root are those of its lock."""

from pathlib import Path

import pytest

from tests.image.dockerfile import ROOT
from tests.image.wheels import beginnings, prune


@pytest.mark.parametrize("name", ["worker", "gateway"])
def test_each_requirement_of_a_lock_is_found(name: str) -> None:
    text = (ROOT / f"requirements/{name}.lock.txt").read_text()
    assert len(beginnings(text)) == sum("==" in line for line in text.splitlines())


def test_what_no_lock_names_goes(tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text("Some.thing-odd==1.2 \\\n    --hash=sha256:00\nother==3.0.post1\n")
    kept = ("some_thing_odd-1.2-py3-none-any.whl", "other-3.0.post1-cp311-cp311-linux_x86_64.whl")
    for wheel in (*kept, "some_thing_odd-1.1-py3-none-any.whl", "gone-1.2-py3-none-any.whl"):
        (tmp_path / wheel).touch()
    prune(tmp_path, [lock])
    assert sorted(path.name for path in tmp_path.glob("*.whl")) == sorted(kept)
