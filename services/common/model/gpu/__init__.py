"""A stack as launches of kernels."""
