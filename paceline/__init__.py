"""Clients of paceline: typed, synchronous and asyncio, and the command `paceline`."""
