"""The target's side of a hand-off: one file a mode, and what several modes are made of."""
