"""One row of one sequence: store_qkv, attention and merge in one launch."""
