"""Which pair a request goes to."""
