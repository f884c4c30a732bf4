"""The drafter's side of a hand-off: one file for each mode."""
