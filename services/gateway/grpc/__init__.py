"""paceline's own API over gRPC: the first listener of the gateway."""
