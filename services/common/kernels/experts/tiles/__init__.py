"""Products of many rows by experts, in tiles of CUDA C++, on an H100 or H200."""
