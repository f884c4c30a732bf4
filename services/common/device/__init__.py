"""A process's use of its device and its threads."""
