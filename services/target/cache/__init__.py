"""K/V blocks: the pool, the prefix cache, and the manager that gives blocks to requests."""
