"""The served SmolLM2 pair beside vLLM with the same files, prompts and limits: real text, real acceptance."""
