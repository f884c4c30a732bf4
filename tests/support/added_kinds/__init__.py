"""Folders of kinds of drafters that tests add to the real ones."""
