"""Tests that need a GPU, or Triton's interpreter in its place."""
