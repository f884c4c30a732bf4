"""What is looked at before anything starts: a checkpoint, its drafter, its text, memory and ports."""
