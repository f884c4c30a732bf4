"""Products of up to 128 rows by weights in eight or four bits, widened in registers, in CUDA C++.

Bytes for T rows: F D of codes, read once, their scales, and 2 T D of rows for each CTA, in L2. The bits are those of a
product by the weight widened to bfloat16.
"""
