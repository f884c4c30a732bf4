"""python -m deploy.options [--check]: writes the table of HTTP's options into docs/use.md, or says it is old."""

import argparse
import sys
from pathlib import Path

from services.gateway.http.schema.options import Option, options

PAGE = Path(__file__).resolve().parents[1] / "docs" / "use.md"
MARK = "<!-- Made from services/gateway/http/schema/bodies.py and options.py by python -m deploy.options -->\n"
END = "<!-- End of the options -->\n"


def table() -> str:
    """One row for each option."""
    head = ["| option | chat | completion | | |", "|---|---|---|---|---|"]
    return "\n".join([*head, *(_row(option) for option in options())]) + "\n"


def _row(option: Option) -> str:
    chat, completion = ("yes" if served else "" for served in (option.chat, option.completions))
    if option.state == "refused":
        chat = completion = "no"
    text = option.text.replace("|", "\\|")
    said = "" if option.state == "ignored" else text[:1].upper() + text[1:].rstrip(".")
    return f"| `{option.name}` | {chat} | {completion} | {option.state} | {said} |"


def page() -> str:
    """The whole page: what a person wrote, and the table between its marks."""
    before, _, rest = PAGE.read_text().partition(MARK)
    return before + MARK + table() + END + rest.partition(END)[2]


def main() -> int:
    """1 when asked to check and the table is stale."""
    parser = argparse.ArgumentParser(prog="python -m deploy.options", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the table is old")
    if not parser.parse_args().check:
        PAGE.write_text(page())
    elif PAGE.read_text() != page():
        sys.stdout.write("docs/use.md is stale: python -m deploy.options\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
