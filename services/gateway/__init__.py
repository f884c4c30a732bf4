"""The gateway: the clients' edge; stateless, and without torch."""
