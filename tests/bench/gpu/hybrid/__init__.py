"""What a hybrid does on a GPU: exact texts, times of its steps, and a large one that is served."""
