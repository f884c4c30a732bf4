"""The memory that a target owns and its drafter maps."""

from services.common.pair.arena.layout import Arena, ArenaSpec, Layout, TensorEntry, plan_layout
from services.common.pair.arena.memfd import MemfdArena

__all__ = ["Arena", "ArenaSpec", "Layout", "MemfdArena", "TensorEntry", "plan_layout"]
