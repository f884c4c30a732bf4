"""Shows that a GPU computes the same bits for a row whatever its company, and what that costs."""
