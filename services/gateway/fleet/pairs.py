"""Pairs as sources name them, and the merge of several sources; pure."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PairEntry:
    """One target as a source names it; sources of bare addresses do not know the pair id and leave it empty."""

    address: str
    pair_id: str = ""
    draining: bool = False

    @property
    def key(self) -> str:
        """What identifies the pair among all sources: its stable id, else its address."""
        return self.pair_id or f"@{self.address}"


@dataclass(frozen=True, slots=True)
class SourceList:
    """The last list of one source; `version` orders the lists of all sources by arrival."""

    version: int
    entries: tuple[PairEntry, ...]


def merge(lists: Iterable[SourceList]) -> dict[str, PairEntry]:
    """All pairs by key: the newest list that names a pair decides, a bare address yields to an entry with an id."""
    merged: dict[str, PairEntry] = {}
    for listed in sorted(lists, key=lambda one: one.version):
        merged.update((entry.key, entry) for entry in listed.entries)
    known = {entry.address for entry in merged.values() if entry.pair_id}
    return {key: entry for key, entry in merged.items() if entry.pair_id or entry.address not in known}
