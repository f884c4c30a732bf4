"""Adaptive speculation: what drafts are worth, what rounds cost, and the width that pays best."""
