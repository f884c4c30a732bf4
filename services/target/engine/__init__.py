"""The loop of rounds and its books: requests, tokens, metrics, spans, health."""
