"""What a process does with its device and its threads."""
