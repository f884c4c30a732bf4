"""The forms, a file for each; a new one is found by its name."""
