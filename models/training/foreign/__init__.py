"""Trains a DFlash drafter for a Llama or Qwen checkpoint that somebody else made: the target stays as it is."""
