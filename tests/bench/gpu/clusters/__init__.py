"""Whether an own product in clusters, which share rows and weights by multicast, beats cuBLAS at 128 rows."""
