"""Text to tokens and back: chat templates, the tokenizer, stop strings."""
