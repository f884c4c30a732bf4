"""Sessions of gateways: the gRPC service, its streams and the conversion of messages."""
