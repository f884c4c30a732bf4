"""Checks of the source itself, run by `make check`."""
