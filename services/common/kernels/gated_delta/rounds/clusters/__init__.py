"""Rounds of few sequences: the CTAs of a thread block cluster have a head together."""
