"""A stack as TorchScript runs it on a CPU."""
