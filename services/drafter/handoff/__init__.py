"""The drafter's side of a hand-off: one file a mode."""
