"""python -m deploy.settings [--check]: writes docs/settings.md from the settings classes, or says it is old."""

import argparse
import sys
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from deploy.cluster.settings import ClusterSettings
from services.common.serving.settings import own
from services.common.serving.settings_help import EMPTY, Setting, settings_of
from services.drafter.settings import DrafterSettings
from services.gateway.settings import GatewaySettings
from services.target.settings import TargetSettings

PAGE = Path(__file__).resolve().parents[1] / "docs" / "settings.md"
HEAD = """# Settings

Made from the settings classes by `python -m deploy.settings`; edit those, not this page. `--help` prints the same list.

A service reads `--config FILE` (TOML), then the environment, then flags; the last one counts. `slots` is `slots = 8` in
the file, `PACELINE_SLOTS=8` in the environment and `--slots 8` as a flag. `--slots-file PATH` and `PACELINE_SLOTS_FILE`
take the value from a file. `--print-config` prints all that was chosen as JSON. Lists are written `1,4,8`.

The controller passes settings on to the services that it starts: `--target.widths 1,4`, `PACELINE_TARGET__WIDTHS=1,4`,
or `widths = [1, 4]` in the table `[target]` of its file.
"""
SERVICES = {
    "Gateway": GatewaySettings,
    "Target": TargetSettings,
    "Drafter": DrafterSettings,
    "Controller": ClusterSettings,
}


def page() -> str:
    """docs/settings.md, as Markdown."""
    parts = [HEAD]
    for title, cls in SERVICES.items():
        command = cls.__module__.rpartition(".")[0]
        parts.append(f"## {title}\n\n`python -m {command}`\n")
        for group, settings in groupby(settings_of(cls, own(cls)), lambda one: one.group):
            parts.append(f"### {title}: {group[:1].lower()}{group[1:]}\n\n{table(settings)}\n")
    return "\n".join(parts)


def table(settings: Iterable[Setting]) -> str:
    """One row for each setting."""
    rows = [f"| `{one.name}` | {_code(one.kind)} | {_shown(one)} | {one.meaning} |" for one in settings]
    return "\n".join(["| setting | value | default | meaning |", "|---|---|---|---|", *rows])


def _shown(setting: Setting) -> str:
    return "needed" if not setting.default else "" if setting.default == EMPTY else f"`{setting.default}`"


def _code(kind: str) -> str:
    """A kind such as NUMBER in words, the values that are allowed as code."""
    return kind.lower() if kind.isupper() else ", ".join(f"`{value}`" for value in kind.split("|"))


def main() -> int:
    """1 when asked to check and the page is stale."""
    parser = argparse.ArgumentParser(prog="python -m deploy.settings", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the page is old")
    if not parser.parse_args().check:
        PAGE.write_text(page())
    elif PAGE.read_text() != page():
        sys.stdout.write("docs/settings.md is stale: python -m deploy.settings\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
