"""Where the pairs are: sources, and their merge."""
