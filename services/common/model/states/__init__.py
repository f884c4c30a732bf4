"""Rows of a step, and what sequences keep between steps beside their K/V."""
