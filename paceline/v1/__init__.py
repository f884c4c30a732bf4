"""Messages and stubs of the public contract, as protoc writes them."""
