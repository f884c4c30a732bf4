"""A binding of cuBLASLt: products by an algorithm of our choice, which torch does not offer."""
