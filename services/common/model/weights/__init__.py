"""A checkpoint's tensors in the form that layers read."""
