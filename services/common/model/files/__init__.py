"""A checkpoint's files: folders, GGUF, packed weights, and the numbers that they mean."""
