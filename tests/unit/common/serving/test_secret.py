"""A secret that is rotated in a file, as people and as Kubernetes change files."""

import asyncio
import logging
import os
import random
from pathlib import Path

import pytest

from services.common.request.errors import PacelineError
from services.common.serving.secret import OVERLAP_S, SHORTEST, Secret, check_secret
from tests.support.report import current_seed
from tests.support.told import told

FIRST, SECOND, THIRD = (f"{name} of the secrets that rotate" for name in ("first", "second", "third"))


class Clock:
    """Seconds that a test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def look(secret: Secret) -> tuple[str, ...]:
    asyncio.run(secret.look())
    return secret.known


def known(secret: Secret) -> tuple[str, ...]:
    return secret.known


def test_a_text_never_changes() -> None:
    assert Secret(FIRST).known == (FIRST,)
    assert Secret().known == ("",) and Secret().matches("") and not Secret().matches(FIRST)


def test_old_and_new_are_known_for_a_while(tmp_path: Path) -> None:
    path, clock = tmp_path / "secret", Clock()
    path.write_text(f"{FIRST}\n")
    secret = Secret(file=str(path), clock=clock)
    path.write_text(SECOND)
    assert look(secret) == (SECOND, FIRST)
    assert secret.matches(FIRST) and secret.matches(SECOND) and not secret.matches(THIRD) and not secret.matches("")
    clock.now += OVERLAP_S / 2
    path.write_text(THIRD)
    assert look(secret) == (THIRD, SECOND, FIRST)
    clock.now += OVERLAP_S / 2
    assert known(secret) == (THIRD, SECOND)
    clock.now += OVERLAP_S / 2
    assert known(secret) == (THIRD,)
    assert not secret.matches(FIRST)


def test_a_secret_that_comes_back_is_the_present_one_for_good(tmp_path: Path) -> None:
    path, clock = tmp_path / "secret", Clock()
    path.write_text(FIRST)
    secret = Secret(file=str(path), clock=clock)
    for text in (SECOND, FIRST):
        path.write_text(text)
        look(secret)
    assert known(secret) == (FIRST, SECOND)
    clock.now += OVERLAP_S
    assert known(secret) == (FIRST,)


def swap(folder: Path, text: str, name: str) -> None:
    """As the kubelet does: a new folder, a new link to it, and a rename over the link before."""
    (folder / name).mkdir()
    (folder / name / "secret").write_text(text)
    (folder / "..data_tmp").symlink_to(name)
    os.rename(folder / "..data_tmp", folder / "..data")


def test_the_swap_of_a_symbolic_link_is_seen(tmp_path: Path) -> None:
    swap(tmp_path, FIRST, "..1")
    (tmp_path / "secret").symlink_to("..data/secret")
    secret = Secret(file=str(tmp_path / "secret"))
    swap(tmp_path, SECOND, "..2")
    assert look(secret) == (SECOND, FIRST)


@pytest.mark.parametrize("content", [b"", b"short", b" " * 40, b"\xff" * 40, None, "folder"])
def test_a_file_that_cannot_be_used_changes_nothing_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes | str | None
) -> None:
    path = tmp_path / "secret"
    path.write_text(FIRST)
    secret = Secret(file=str(path))
    path.unlink()
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        path.mkdir()
    with caplog.at_level(logging.ERROR, "services.common.serving.followed"):
        assert look(secret) == look(secret) == (FIRST,)
    assert len(told(caplog, "services.common.serving")) == 1
    assert "the secrets stay as they were" in caplog.text
    assert FIRST not in caplog.text


def test_any_order_of_changes_and_looks_keeps_what_was_present_lately(tmp_path: Path) -> None:
    """Beside a model of a few lines: a text is known while it is present and OVERLAP_S longer."""
    generator = random.Random(current_seed())
    for number in range(20):
        path, clock = tmp_path / str(number), Clock()
        path.write_text(FIRST)
        secret, present, until = Secret(file=str(path), clock=clock), FIRST, dict[str, float]()
        for _ in range(40):
            text = generator.choice((FIRST, SECOND, THIRD))
            path.write_text(text if generator.random() < 0.8 else text[: generator.randrange(SHORTEST)])
            seen = path.read_text()
            known = set(look(secret))
            if len(seen) >= SHORTEST and seen != present:
                until[present] = clock.now + OVERLAP_S
                present = seen
            until.pop(present, None)
            assert known == {present, *(one for one, end in until.items() if end > clock.now)}
            clock.now += generator.choice((1.0, OVERLAP_S / 3, OVERLAP_S))


def test_settings_name_what_is_wrong(tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_text("short")
    for text, file, field in (
        ("short", "", "session_secret"),
        ("", str(tmp_path / "none"), "session_secret_file"),
        ("", str(short), "session_secret_file"),
        (FIRST, str(short), "session_secret_file"),
    ):
        with pytest.raises(PacelineError) as refused:
            check_secret("session_secret", text, file)
        assert refused.value.field == field
    check_secret("session_secret", "", "")
