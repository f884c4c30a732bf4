"""The last product of experts of one row in CUDA C++: its weights are on their way while the product before drains."""
