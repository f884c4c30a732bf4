"""python -m deploy.formats [--check]: writes the table of packed weights into docs/use.md, or says it is old."""

import argparse
import sys
from pathlib import Path

from services.common.model.weight_formats import FORMATS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "use.md"
MARK = "<!-- Made from services/common/model/weight_formats by python -m deploy.formats -->\n"
END = "<!-- End of what is made -->\n"


def table() -> str:
    """One row for each kind of file."""
    kinds = [kind for _, file in sorted(FORMATS.items()) for kind in file.KINDS]
    rows = [f"| {kind.config} | {kind.files} | {kind.refused} |" for kind in kinds]
    return "\n".join(["| `quantization_config` | files named | refused |", "|---|---|---|", *rows]) + "\n"


def page() -> str:
    """The whole page: what a person wrote, and the table between its marks."""
    before, _, rest = PAGE.read_text().partition(MARK)
    return before + MARK + table() + END + rest.partition(END)[2]


def main() -> int:
    """1 when asked to check and the table is stale."""
    parser = argparse.ArgumentParser(prog="python -m deploy.formats", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the table is old")
    if not parser.parse_args().check:
        PAGE.write_text(page())
    elif PAGE.read_text() != page():
        sys.stdout.write("docs/use.md is stale: python -m deploy.formats\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
