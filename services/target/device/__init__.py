"""Everything that touches tensors: the slots' state, captured steps, and the runner that replays them."""
