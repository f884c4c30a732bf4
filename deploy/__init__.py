"""Everything that starts paceline: the Ray cluster, the one-machine stack, images and charts."""
