"""Each kernel against its reference."""
