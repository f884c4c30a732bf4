"""Products in tiles, with what follows them in a block, in CUDA C++: CTAs take one tile after the other.

Weights have eight bits or are bfloat16, of e bytes. Bytes for T rows: F D e of weights, once where the CTAs that read
the same lines run together, and T D e for each band of lines. A row has the bits of all other products: integers
add up exactly, others in order of depth, and the ends are the same.
"""
