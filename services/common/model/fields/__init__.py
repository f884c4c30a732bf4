"""Keys of a configuration: read by type, refused by name."""
