"""Rounds of many sequences: half of a CTA prepares blocks while the other half takes states through those before."""
