"""Ranks cuBLASLt's algorithms for the products of many rows, and writes the table that targets read."""
