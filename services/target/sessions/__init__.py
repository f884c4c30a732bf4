"""Sessions of gateways: the service, its streams and their conversion."""
