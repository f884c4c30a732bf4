"""Rounds of one sequence: the CTAs of a thread block cluster have a head together."""
