"""The contract of target and drafter: the arena, the offer, turns, flags and messages."""
