"""The targets: one session each, its health, and the requests that run over it."""
