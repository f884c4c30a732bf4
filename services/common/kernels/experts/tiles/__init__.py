"""Products of rows by experts, in tiles of CUDA C++, on an H100 or H200: of many rows, and of few by codes."""
