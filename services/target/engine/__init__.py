"""The loop of rounds and its records: requests, tokens, metrics, spans, health."""
