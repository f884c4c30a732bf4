"""GGUF files as checkpoints: their keys, and folders of Hugging Face's files that describe them; imports no torch."""
