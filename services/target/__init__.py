"""The target: verifies drafts, owns all state of its requests."""
