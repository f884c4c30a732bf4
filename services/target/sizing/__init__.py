"""The memory plan of a pair, made before anything is allocated."""
