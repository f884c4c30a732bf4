"""A row that is alone through its experts in one launch of CUDA C++, on an H100 or H200."""
