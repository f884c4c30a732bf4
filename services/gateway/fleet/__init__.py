"""The list of pairs: its sources, and their merge."""
