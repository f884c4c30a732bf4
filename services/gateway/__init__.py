"""The gateway: the service that clients call; it is stateless and imports no torch."""
