"""Adaptive speculation: expected commits, costs of rounds, and the choice of the width."""
