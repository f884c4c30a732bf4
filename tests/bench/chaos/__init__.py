"""Faults of every kind under live streams, and load for long: one rig for `make chaos` and `make soak`."""
