"""Operators, one folder each: `kernel.py` is the GPU path.

The package, or its `reference.py` where others call that too, states the meaning and is the CPU path. An `Operator`
chooses by the device of its tensors. Legend of shape suffixes: B row of the
batch, S slot, W row of a span, K draft, T token, H head, D width, V vocabulary, L layer, N block, M stop id.
"""
