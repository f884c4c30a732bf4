"""One launch between two products, for a row each of many sequences."""
