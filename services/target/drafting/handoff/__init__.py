"""The target's side of a hand-off: one file for each mode, and the parts that several modes share."""
