"""Attention of rows that are nodes of trees, with the bits that each node's path has as a chain."""
