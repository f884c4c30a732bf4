"""The race against vLLM: what is run in which order, what becomes of the runs, and both sides."""
