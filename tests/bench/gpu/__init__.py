"""What a pair does on a GPU: python -m tests.bench.gpu."""
