"""OpenAI's API over HTTP: the second listener of the gateway, over the same streams as gRPC."""
