"""All that touches tensors: state, captured steps, and the runner that replays them."""
