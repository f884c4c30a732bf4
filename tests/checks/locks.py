"""Writes the locks, the packages of each installation with the hash of every file: `make lock INDEX=https://...`.

Runs with uv's environment and the standard library alone; what it promises is held up by a test that needs no network.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "requirements"
PYTHONS = ("3.11", "3.12")
PLATFORM = "x86_64-manylinux_2_28"
CLIENTS = (
    "agents",
    "anthropic",
    "dspy",
    "guidellm",
    "instructor",
    "langchain",
    "litellm",
    "llm",
    "lm_eval",
    "openai",
    "pydantic_ai",
)
"""Of OpenAI's API, whose environments make test-interop makes."""
LOCKS = {
    "dev": ("dev.txt",),
    "gateway": ("gateway.txt", "tracing.txt"),
    "worker": ("worker.txt", "tracing.txt"),
    "generate": ("generate.txt",),
    "uv": ("uv.txt",),
    "schemathesis": ("schemathesis.txt",),
    **{f"clients/{name}": (f"clients/{name}.txt",) for name in CLIENTS},
}
"""The requirements that each lock answers for; gateway and worker are the images."""
CONSTRAINED = ("dev", "gateway", "worker")
"""Those that share the versions of constraints.txt; the others are environments of their own."""
BY_VERSION = re.compile(r"torch|(?:cuda|nvidia)-.*")
"""What is taken by torch's version, because machines differ in its build: in the locks of TORCH none of it stands."""
TORCH = ("dev", "clients/guidellm")
"""Environments into which torch is installed by its version."""


@dataclass(frozen=True)
class Entry:
    """One package of a lock, as its lines say."""

    name: str
    version: str
    hashes: frozenset[str]
    text: str = field(compare=False)


def lock(name: str) -> Path:
    """The file of a lock."""
    return FOLDER / f"{name}.lock.txt"


def normal(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def entries(text: str) -> Iterator[Entry]:
    """The packages of a lock."""
    for part in re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]:
        name, _, version = part.split()[0].partition("==")
        yield Entry(normal(name), version, frozenset(re.findall(r"--hash=(sha256:[0-9a-f]{64})\b", part)), part)


def compiled(name: str, python: str, index: str) -> str:
    """The lock of one Python by uv; versions that the present lock chose are kept.

    Raises:
        SystemExit: uv found no solution; it has said why.
    """
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "UV_"))}
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "lock.txt"
        if lock(name).exists():
            output.write_text(lock(name).read_text())
        command = [
            str(Path(sys.executable).with_name("uv")),
            "pip",
            "compile",
            "--quiet",
            "--no-config",
            "--system-certs",
        ]
        command += ["--generate-hashes", "--no-header", "--python-version", python]
        command += ["--python-platform", PLATFORM, "--output-file", str(output)]
        command += ["--default-index", index] if index else []
        command += ["--constraint", "constraints.txt"] if name in CONSTRAINED else []
        done = subprocess.run(
            [*command, *LOCKS[name]], cwd=FOLDER, env=clean | {"PIP_CONFIG_FILE": os.devnull}, check=False
        )
        if done.returncode:
            raise SystemExit(done.returncode)
        return output.read_text()


def main(index: str) -> int:
    """Writes every lock; 1 when the Pythons would need locks of their own."""
    for name in LOCKS:
        first, *others = [[*entries(compiled(name, python, index))] for python in PYTHONS]
        if any(other != first for other in others):
            sys.stderr.write(f"{name}: {' and '.join(PYTHONS)} need different packages, one lock cannot serve them\n")
            return 1
        kept = [entry.text for entry in first if not (name in TORCH and BY_VERSION.fullmatch(entry.name))]
        lock(name).write_text("# Made by `make lock`.\n" + "".join(kept))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
