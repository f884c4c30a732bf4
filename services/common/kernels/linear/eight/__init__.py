"""Products of more than 64 rows by weights of eight bits, with what follows them in a block, in CUDA C++.

Bytes for T rows: F D of weights, once where the CTAs that read the same lines run together, and T D for each band of
lines. A row has the bits of the programs in Triton: whole numbers add up exactly, and the ends are the same.
"""
