"""What target and drafter agree on: the arena, the offer, turns, flags and messages."""
