"""gRPC options in one place, and channels between services."""

from collections.abc import Sequence

import grpc

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
MAX_CLIENT_MESSAGE_BYTES = 4 * 1024 * 1024
MAX_CLIENT_STREAMS = 256
PING_EVERY_MS = 10_000
IDLE_MS = 600_000
"""Time without a call after which a client's connection ends; the client opens another when it needs one."""

HANDSHAKE_MS = 10_000
"""Time for TLS to begin."""

MAX_HEADER_BYTES = 16_384
"""Headers of one call, each counted with 32 bytes more; as many as over HTTP."""

# Between its soft and its hard limit gRPC refuses headers by chance: there is one limit.
COMMON_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_metadata_size", MAX_HEADER_BYTES),
    ("grpc.absolute_max_metadata_size", MAX_HEADER_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", PING_EVERY_MS),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)

# gRPC inflates a compressed message whole before it looks at its size. Without decompression none is inflated, and a
# message that says it is compressed ends in UNIMPLEMENTED.
UNCOMPRESSED: tuple[tuple[str, int], ...] = (
    ("grpc.compression_enabled_algorithms_bitset", 1),
    ("grpc.per_message_decompression", 0),
)

# Clients may ping every second on a quiet stream; gRPC's default of five minutes would end their connection.
SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    *COMMON_OPTIONS,
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 500),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.so_reuseport", 0),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
    ("grpc.max_concurrent_streams", MAX_CLIENT_STREAMS),
    *UNCOMPRESSED,
)

# For listeners that unknown clients reach: no prompt is larger, and no client needs more calls at once on one
# connection. Without probes an unread message gets no more than the first window of its stream.
EDGE_OPTIONS: tuple[tuple[str, int], ...] = (
    *((name, value) for name, value in SERVER_OPTIONS if name != "grpc.max_receive_message_length"),
    ("grpc.max_receive_message_length", MAX_CLIENT_MESSAGE_BYTES),
    ("grpc.max_connection_idle_ms", IDLE_MS),
    ("grpc.http2.bdp_probe", 0),
)

# Probes send a service's name.
PROBE_OPTIONS: tuple[tuple[str, int], ...] = (
    *(
        (name, value)
        for name, value in SERVER_OPTIONS
        if name not in ("grpc.max_receive_message_length", "grpc.max_concurrent_streams")
    ),
    ("grpc.max_receive_message_length", 4096),
    ("grpc.max_concurrent_streams", 16),
    ("grpc.max_connection_idle_ms", IDLE_MS),
    ("grpc.http2.bdp_probe", 0),
)

# A proxy of the environment is there for the hub: services reach one another without it.
# The "minimum" of gRPC is in fact the time that one attempt to connect may take, handshakes included; attempts that are
# refused are repeated after the back-off of 0.1 to 1 s.
CLIENT_OPTIONS: tuple[tuple[str, int], ...] = (
    *COMMON_OPTIONS,
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)


def connect(
    address: str,
    credentials: grpc.ChannelCredentials | None = None,
    options: Sequence[tuple[str, int | str]] = (),
) -> grpc.aio.Channel:
    """An asyncio channel to host:port or unix:/path; plaintext without credentials."""
    merged = _merged(options)
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=merged)
    return grpc.aio.secure_channel(address, credentials, options=merged)


def connect_sync(
    address: str,
    credentials: grpc.ChannelCredentials | None = None,
    options: Sequence[tuple[str, int | str]] = (),
) -> grpc.Channel:
    """A blocking channel, for threads that own no event loop."""
    merged = _merged(options)
    if credentials is None:
        return grpc.insecure_channel(address, options=merged)
    return grpc.secure_channel(address, credentials, options=merged)


def _merged(options: Sequence[tuple[str, int | str]]) -> list[tuple[str, int | str]]:
    """The common options without those that these replace: of two options of one name gRPC takes the first."""
    return list({**dict(CLIENT_OPTIONS), **dict(options)}.items())
