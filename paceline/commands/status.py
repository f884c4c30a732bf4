"""paceline status: what the pairs behind a gateway do, live."""

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from paceline.client import Client
from paceline.commands import connection
from paceline.commands.parsing import Parser, seconds
from paceline.commands.terminal import typed_within, unechoed
from paceline.served import Activity, Status

COLUMNS = ("pair", "drafts", "running", "waiting", "tok/s", "tau", "widths", "KV", "queue")
WIDTHS = 2
"""Widths that are told, the most used first."""


def run(argv: Sequence[str]) -> int:
    """Shows the status until q or Ctrl-C, or once where nobody watches."""
    chosen = arguments(argv)
    console = Console()
    with connection.client(chosen) as client:
        if chosen.json:
            print(json.dumps(asdict(client.status())))
        elif chosen.once or not console.is_terminal:
            console.print(table(client.status()))
        else:
            follow(client, console, chosen.interval)
    return 0


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = Parser(prog="paceline status", description=f"{__doc__} q ends it.")
    connection.add_flags(parser)
    parser.add_argument("--once", action="store_true", help="print it once")
    parser.add_argument("--json", action="store_true", help="print it once, as one line of JSON")
    parser.add_argument(
        "--interval", type=seconds, default=1.0, metavar="SECONDS", help="between looks; default: %(default)s"
    )
    return parser.only(argv)


def follow(client: Client, console: Console, interval_s: float) -> None:
    """Shows what is, again and again, until q is typed."""
    try:
        with unechoed(by_key=True), Live(table(client.status()), console=console, auto_refresh=False) as live:
            live.refresh()
            while not asked_to_end(interval_s):
                live.update(table(client.status()), refresh=True)
    except KeyboardInterrupt:
        pass


def asked_to_end(within_s: float) -> bool:
    """Whether q is typed in so many seconds, which pass otherwise."""
    end = time.monotonic() + within_s
    while (left_s := end - time.monotonic()) > 0:
        if not sys.stdin.isatty():
            time.sleep(left_s)
        elif typed_within(left_s) and os.read(sys.stdin.fileno(), 1) in (b"q", b"Q", b""):
            return True
    return False


def table(status: Status) -> Table:
    """One row for each pair that is told, and one for all.

    Their models stand beside where there are several, their numerics where these differ, and why some are away.
    """
    title = f"{served(status)}: {status.ready_pairs} of {status.pairs} pairs ready"
    found = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in COLUMNS:
        found.add_column(name, justify="left" if name in COLUMNS[:2] else "right", no_wrap=True)
    several = len(status.models) > 1
    if several:
        found.add_column("model", no_wrap=True)
    mixed = len({pair.numerics for pair in status.each if pair.numerics}) > 1
    if mixed:
        found.add_column("numerics", no_wrap=True)
    away = any(pair.away for pair in status.each)
    if away:
        found.add_column("why it is away", overflow="fold")
    for pair in status.each:
        drafts = (pair.proposer if pair.speculating else "none") if pair.ready else "away"
        named = [pair.model] if several else []
        further = [*named, *([pair.numerics] if mixed else []), *([pair.away] if away else [])]
        found.add_row(pair.pair_id, drafts, *cells(pair.activity), *further)
    found.add_row("all", "", *cells(status.total), style="bold")
    return found


def served(status: Status) -> str:
    """What is served, in words."""
    return ", ".join(status.models) or status.model or "no model yet"


def cells(activity: Activity) -> tuple[str, ...]:
    """What a pair does, in the columns behind its name; the queue is in prompt tokens."""
    used = 1 - activity.free_blocks / activity.total_blocks if activity.total_blocks else None
    return (
        f"{activity.running} of {activity.slots}",
        str(activity.waiting),
        f"{activity.tokens_per_second:,.0f}",
        f"{activity.tokens_per_round:.2f}" if activity.tokens_per_round else "-",
        widths(activity.rounds_by_width) or "-",
        f"{used:.0%}" if used is not None else "-",
        f"{activity.queued_tokens:,}",
    )


def widths(rounds: Mapping[int, int]) -> str:
    """Shares of rounds by width."""
    total = sum(rounds.values())
    ordered = sorted(rounds.items(), key=lambda one: (-one[1], one[0]))[:WIDTHS]
    return " ".join(f"{width}:{count / total:.0%}" for width, count in ordered)
