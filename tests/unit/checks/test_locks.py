"""Locks and requirements say the same, with the hash of every file; needs no network."""

import re
from collections.abc import Iterator

import pytest

from tests.checks.locks import BY_VERSION, CONSTRAINED, FOLDER, LOCKS, TORCH, Entry, entries, lock, normal
from tests.support.cases import each

ROOT = FOLDER.parent


def required(file: str) -> Iterator[tuple[str, str]]:
    """(package, version or nothing) of a requirements file and those it names."""
    for line in (FOLDER / file).read_text().splitlines():
        wanted = line.partition("#")[0].strip()
        if wanted.startswith("-r "):
            yield from required(wanted.removeprefix("-r "))
        elif wanted:
            name, _, version = wanted.partition("==")
            yield normal(name.partition("[")[0]), version


def locked(name: str) -> dict[str, Entry]:
    return {entry.name: entry for entry in entries(lock(name).read_text())}


CONSTRAINTS = dict(required("constraints.txt"))


@each("name", LOCKS)
def test_what_is_required_is_locked_at_its_version(name: str) -> None:
    found = locked(name)
    for file in LOCKS[name]:
        for package, version in required(file):
            if not (name in TORCH and BY_VERSION.fullmatch(package)):
                assert package in found, f"{file}: {package} is not in {lock(name).name}: run make lock"
                assert version in ("", found[package].version), package


@pytest.mark.parametrize("name", CONSTRAINED)
def test_locked_versions_are_the_constraints(name: str) -> None:
    """CUDA's packages have none, but for the compiler: torch and cupy name the versions they need."""
    for package, entry in locked(name).items():
        if package in ("torch", "nvidia-cuda-nvrtc") or not BY_VERSION.fullmatch(package):
            assert CONSTRAINTS.get(package) == entry.version, package


def test_every_constraint_is_in_use() -> None:
    used = {package for name in CONSTRAINED for package in locked(name)}
    assert set(CONSTRAINTS) <= used


@each("name", LOCKS)
def test_every_locked_package_has_a_version_and_hashes(name: str) -> None:
    found = locked(name)
    assert found
    for package, entry in found.items():
        assert re.fullmatch(r"[\w.!+]+", entry.version), package
        assert entry.hashes, f"{package} has no hash"


def test_no_index_stands_in_any_requirement() -> None:
    for path in FOLDER.rglob("*.txt"):
        assert not re.search(r"://|^\s*(--index|--extra-index|--find-links|-i |-f )", path.read_text(), re.MULTILINE), (
            path
        )


def test_setup_takes_torch_by_its_version_and_all_else_by_hash() -> None:
    assert not [package for package in locked("dev") if BY_VERSION.fullmatch(package)]
    for package in ("torch", "nvidia-cuda-nvrtc"):
        file = f"{package.rpartition('-')[2]}.txt"
        assert list(required(file)) == [(package, "")] and CONSTRAINTS[package], file
    recipe = (FOLDER / "install.sh").read_text()
    assert '--require-hashes --requirement "$lock"' in recipe
    by_version = "requirements/torch.txt requirements/nvrtc.txt"
    assert f"install.sh .venv requirements/dev.lock.txt {by_version}\n" in (ROOT / "Makefile").read_text()


def test_images_hold_nothing_without_a_hash() -> None:
    assert locked("worker")["torch"].hashes and "torch" not in locked("gateway")
    for image in ("gateway", "worker"):
        text = (ROOT / f"deploy/docker/{image}.Dockerfile").read_text()
        installs = re.findall(r"pip install ([^\\\n]*)", text)
        assert f"requirements/{image}.lock.txt" in text and installs
        assert all(
            flags.startswith("--no-cache-dir --no-deps --require-hashes --requirement /etc/") for flags in installs
        )


def test_an_entry_without_a_hash_is_seen() -> None:
    text = "# Made by hand.\na-b==1.0 \\\n    --hash=sha256:" + "0" * 64 + "\n    # via c\nC_d==2.0\n    # via a-b\n"
    first, second = entries(text)
    assert (first.name, first.version, len(first.hashes)) == ("a-b", "1.0", 1)
    assert (second.name, second.version, second.hashes) == ("c-d", "2.0", frozenset())
