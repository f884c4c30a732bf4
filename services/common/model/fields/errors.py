"""The one error of checkpoint reading."""


class ModelError(ValueError):
    """A checkpoint that cannot be served; the message names the file and the key or tensor at fault."""
