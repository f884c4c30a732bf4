"""Load generator: curves, arrivals, mixes and conversations against a running gateway."""
