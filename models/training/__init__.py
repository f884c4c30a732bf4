"""Trains the embedded model pair: a small target and its DFlash drafter."""
