"""Limits of connections over HTTP; those of messages are the same as gRPC's."""

CONNECTIONS = 2048
"""Open at once; past them idle ones make room, and new ones wait where none is idle."""

BACKLOG = 1024
"""Connections that wait in the kernel."""

HEADER_BYTES = 16_384
"""Request line and headers together."""

HEADERS = 128
"""Headers of one request."""

CHUNKS, CHUNK_BYTES = 1024, 256
"""Chunks of a body, and one more for so many bytes; each costs as much work as some kilobytes."""

READ_BYTES = 1 << 16
"""The most that is read of a connection at once, and kept until its turn."""

SMALL_BYTES = 1 << 12
"""Behind so much of a connection that waits for its turn, one more read is kept."""

EVENTS = 32
"""Headers, pieces of a body and ends that one connection is read in a turn of the event loop."""

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
