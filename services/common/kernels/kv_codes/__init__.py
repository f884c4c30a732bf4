"""Keys and values in eight bits: a code for each number, and for each token and head a power of two for all its codes.

A code times its power is a number that bfloat16 holds, and these are the keys and values: whatever multiplies by them
in order gives the bits of a product by the same numbers in bfloat16. A head is coded once, when it is stored, from the
numbers that would have been stored, by itself alone.
"""
