"""Limits of connections over HTTP; those of messages are the same as gRPC's."""

CONNECTIONS = 2048
"""Open at once; more are hung up on."""

HEADER_BYTES = 16_384
"""Request line and headers together."""

HEADERS_S = 10.0
"""Time from a connection, or from the first byte of a later request, to the end of the headers."""

IDLE_S = 30
"""Time that a connection without a request is kept."""

BODY_LINGER_S = 2.0
"""Time that a body is read and dropped after its answer."""

HANDSHAKE_S = 10.0
"""Time for TLS to begin."""

SEND_BUFFER_BYTES = 1 << 17
"""Of a connection in the kernel, which doubles it; left alone it holds megabytes for a client that does not read."""

UNREAD_S = 30.0
"""Time that a client has to take what waits for it, before the rest is dropped."""
