"""python -m deploy.version [NEW | --check TAG | --notes TAG]: this checkout's version, made NEW everywhere.

Or it is compared with a tag, or what the CHANGELOG says of a tag is told. NEW dates the CHANGELOG's open section too.
The chart has a version of its own: --chart gives it another.
"""

import argparse
import datetime
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NUMBER = r"\d+\.\d+\.\d+(?:-?(?:a|b|rc)\.?\d+)?"
PLACES = {
    "pyproject.toml": rf'^version = "({NUMBER})"$',
    "paceline/__init__.py": rf'^__version__ = "({NUMBER})"$',
    "services/common/metrics/version.py": rf'^VERSION = "({NUMBER})"$',
    "deploy/helm/paceline/Chart.yaml": rf"^appVersion: ({NUMBER})$",
    "docs/deploy.md": rf"paceline/(?:gateway|worker):({NUMBER}) ",
}
CHART = {"deploy/helm/paceline/Chart.yaml": rf"^version: ({NUMBER})$"}
OPEN = "## [Unreleased]\n"


def versions(root: Path = ROOT) -> dict[str, set[str]]:
    """What each place says, by its file; none where it says nothing."""
    return {file: set(re.findall(pattern, (root / file).read_text(), re.MULTILINE)) for file, pattern in PLACES.items()}


def change(new: str, places: dict[str, str], root: Path = ROOT) -> None:
    """Writes a version into every place."""
    for file, pattern in places.items():
        path = root / file
        path.write_text(re.sub(pattern, lambda found: found[0].replace(found[1], new), path.read_text(), flags=re.M))


def date(new: str, today: datetime.date, root: Path = ROOT) -> None:
    """Gives the open section of the CHANGELOG its version and date, and opens another one."""
    path = root / "CHANGELOG.md"
    path.write_text(path.read_text().replace(OPEN, f"{OPEN}\n## [{new}] - {today}\n", 1))


def disagreement(tag: str, root: Path = ROOT) -> str:
    """What does not say the version of a tag such as v0.2.0; empty when everything does."""
    wanted = tag.removeprefix("v")
    wrong = {file: said for file, said in versions(root).items() if said != {wanted}}
    if not wrong and f"## [{wanted}] - " not in (root / "CHANGELOG.md").read_text():
        return f"CHANGELOG.md has no section for {wanted}"
    return "; ".join(f"{file} says {', '.join(sorted(said)) or 'nothing'}" for file, said in wrong.items())


def notes(tag: str, root: Path = ROOT) -> str:
    """What the CHANGELOG says of a tag such as v0.2.0, without its heading; empty where it has no such section."""
    heading = rf"^## \[{re.escape(tag.removeprefix('v'))}\] - .*$"
    sections = re.split(heading, (root / "CHANGELOG.md").read_text(), maxsplit=1, flags=re.MULTILINE)
    return re.split(r"^## \[", sections[-1], maxsplit=1, flags=re.MULTILINE)[0].strip() if len(sections) > 1 else ""


def main() -> int:
    """1 when asked to check and something says another version, or for notes that are not there."""
    parser = argparse.ArgumentParser(prog="python -m deploy.version", description=__doc__)
    parser.add_argument("new", nargs="?", default="", help="such as 0.2.0; default: none, the version is only told")
    parser.add_argument("--chart", default="", help="version of the chart; default: it stays")
    parser.add_argument(
        "--check", default="", metavar="TAG", help="only say whether everything is of this tag; default: none"
    )
    parser.add_argument("--notes", default="", metavar="TAG", help="only tell what is new in this tag; default: none")
    flags = parser.parse_args()
    for number in filter(None, (flags.new, flags.chart)):
        if not re.fullmatch(NUMBER, number):
            parser.error(f"{number!r} is no version such as 0.2.0 or 0.2.0rc1")
    if flags.check:
        wrong = disagreement(flags.check)
        sys.stdout.write(f"not {flags.check}: {wrong}\n" if wrong else f"everything is of {flags.check}\n")
        return bool(wrong)
    if flags.notes:
        told = notes(flags.notes)
        sys.stdout.write(f"{told}\n" if told else f"CHANGELOG.md says nothing of {flags.notes}\n")
        return not told
    if flags.new:
        change(flags.new, PLACES)
        date(flags.new, datetime.datetime.now(datetime.UTC).date())
    if flags.chart:
        change(flags.chart, CHART)
    sys.stdout.write(f"{', '.join(sorted(set().union(*versions().values())))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
