"""Products of some hundred rows with what follows them in a block, in CUDA C++, with the bits of all other products.

Bytes for T rows: F D e of weights, once for each 128 or 256 rows, and T D e of rows for each band of lines. What a
launch behind the library's product reads and writes again, 2 T F e and more, stays in registers here.
"""
