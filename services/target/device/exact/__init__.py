"""The check at start: a row has the same bits in every captured shape, or the shape is named."""
