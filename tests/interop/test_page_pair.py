"""The page in front of the embedded pair: real drafts are marked, and the page can be looked at as build/page.png."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.stack import EMBEDDED
from tests.interop.browser import browse
from tests.interop.peers import REPOSITORY, service
from tests.interop.test_smg_pair import pair

PROMPT = 'def fibonacci(n):\n    """Return the n-th Fibonacci number."""\n'
PICTURE = REPOSITORY / "build/page.png"


@pytest.fixture
def address() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="pl") as made, pair(Path(made), "paceline-embedded") as started:
        flags = ("--tokenizer", str(EMBEDDED / "target"), "--targets", started.bound["grpc"], "--http", "127.0.0.1:0")
        with service("services.gateway", *flags) as gateway:
            yield gateway["http"]


async def test_speculation_is_seen_at_work(address: str) -> None:
    PICTURE.parent.mkdir(exist_ok=True)
    form = {
        "message": PROMPT,
        "kind": "text",
        "mode": "in-turn",
        "tokens": 96,
        "temperature": 0,
        "seed": 1,
        "marks": True,
    }
    viewport = {"width": 1280, "height": 1010}
    seen = await browse("picture", address, form=form, path=str(PICTURE), viewport=viewport)
    on, off = seen["answers"]
    assert on["text"] == off["text"] and len(on["text"]) > 96
    assert [name for name, _ in on["pieces"]].count("MARK") > 5
    assert [name for name, _ in off["pieces"]] == ["#text"]
    assert float(on["figures"]["tokens per round"]) > 1.5 and off["figures"]["tokens per round"] == "1.00"
    assert seen["verdicts"][0].startswith("The texts are equal. ")
    assert "embedded demonstration model" in seen["about"]
    assert PICTURE.read_bytes().startswith(b"\x89PNG")
