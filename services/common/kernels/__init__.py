"""Operators, one folder each: `reference.py` states the meaning and is the CPU path, `kernel.py` is the GPU path.

The function in an operator's `__init__` chooses by the device of its tensors. Legend of shape suffixes: B row of the
batch, S slot, W row of a span, K draft, T token, H head, D width, V vocabulary, L layer, N block, M stop id.
"""
