"""Products of up to 32 rows with what follows them in a block, in CUDA C++, with the bits of all other products.

Bytes for T rows: F D e of weights, read once, and T D e of rows for each CTA, in L2. The first weights are on their way
while the kernel before drains: so memory does not idle between two products.
"""
