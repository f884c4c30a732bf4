"""Links of pages lead somewhere, and every command of a page is run by a test or is listed with what it needs.

Runbooks are left out: tests/deploy/full/test_live.py runs their commands against a release.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.cases import each

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("docs", "models", "services", "deploy", "tests", "examples", "proto")
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])
WITH_COMMANDS = [page for page in PAGES if page.parent.name not in ("operate", "log")]

RUN = {
    "make check": ".github/workflows/ci.yml",
    "make test": ".github/workflows/ci.yml",
    "make demo": ".github/workflows/ci.yml",
    "make setup": "tests/unit/checks/test_install.py",
    "make up ": "tests/integration/deploy/test_up.py",
    'pip install ".[serve]"': "tests/unit/checks/test_wheel.py",
    "mkdir -m 700 /tmp/pair": "tests/integration/test_examples.py",
    ".venv/bin/python -m services.": "tests/integration/test_examples.py",
    ".venv/bin/python -m examples.": "tests/integration/test_examples.py",
    "PACELINE_PROPOSER=ngram .venv/bin/python -m services.drafter": "tests/unit/common/serving/test_settings.py",
    ".venv/bin/python -m pip install --no-deps smg-grpc-proto": "tests/interop/test_smg.py",
    "smg launch": "tests/interop/test_smg.py",
    "echo '- {model_id": "tests/interop/test_clients.py",
    "llm ": "tests/interop/test_clients.py",
    "python -m tests.bench.race": "tests/unit/bench/test_race.py",
}
NEEDS = {
    "python -m models.training drafter": "a GPU for a quarter of an hour",
    "make up MODEL=": "the hub",
    "paceline serve Qwen": "the hub",
    "hf download ": "the hub",
    "python -m tests.bench.gpu": "a GPU",
    "python -m tests.bench.embedded": "half an hour of a quiet machine",
    "helm ": "a cluster",
    "--set ": "a cluster",
    "kubectl ": "a cluster",
    "SECRET=$(kubectl": "a cluster",
    "docker build": "Docker",
    "SECRET=$(openssl": "Docker and a GPU",
    "grpcurl ": "grpcurl",
}


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    titles = [re.sub(r"\]\([^)]*\)", "", title).lower() for title in re.findall(r"^#+ (.+)$", prose, re.MULTILINE)]
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


def commands(text: str) -> Iterator[str]:
    """Lines of blocks for a shell, and indented ones; pictures, output and comments are none."""
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        lines = re.sub(r"\\\n\s*", " ", block).splitlines()
        if language in ("", "bash", "sh") and not any(line.startswith("  ") for line in lines):
            yield from (line for line in lines if line and not line.startswith(("#", "{", '"')))
    yield from re.findall(
        r"^    ((?:make|python) .+)$", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M), re.MULTILINE
    )


def known(command: str) -> str | None:
    """The longest beginning under which a command is listed."""
    return max((start for start in (*RUN, *NEEDS) if f"{command} ".startswith(start)), key=len, default=None)


@each("page", PAGES)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        if not re.match(r"https?://|mailto:", link):
            name, _, anchor = link.partition("#")
            path = (page.parent / name).resolve() if name else page
            assert path.exists(), link
            assert not anchor or anchor in anchors(path), link


@each("page", WITH_COMMANDS)
def test_every_command_is_run_by_a_test_or_listed_with_what_it_needs(page: Path) -> None:
    assert [command for command in commands(page.read_text()) if known(command) is None] == []


def test_no_entry_of_the_lists_is_left_over() -> None:
    used = {known(command) for page in WITH_COMMANDS for command in commands(page.read_text())}
    assert {*RUN, *NEEDS} - used == set()
    assert [test for test in RUN.values() if not (ROOT / test).is_file()] == []
