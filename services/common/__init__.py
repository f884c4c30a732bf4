"""Code that more than one service uses."""
