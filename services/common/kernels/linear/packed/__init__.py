"""Products by weights in eight or four bits, which warps widen beside those that multiply, in CUDA C++.

Bytes for T rows: F D of codes, once where the CTAs that read the same lines run together, their scales, and 2 T D of
rows for each band of lines, in L2. The bits are those of a product by the weight widened to bfloat16.
"""
