"""The manager of K/V blocks: the pool, the prefix cache, and who owns what."""
