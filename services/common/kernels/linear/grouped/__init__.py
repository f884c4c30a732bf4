"""Rows and weights of e4m3 codes in groups of 128 inputs with a scale each, as files in FP8 mean their activations."""
