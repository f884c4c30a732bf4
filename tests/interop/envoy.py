"""Envoy in front of gateways: HTTP/2 in, mutual TLS out, gRPC health checks, retries on another gateway."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from services.common.serving.tls import TlsFiles
from tests.interop.peers import PEERS, START_S, fetch, running

NAME = "envoy.extensions"
TYPE = f"type.googleapis.com/{NAME}"


def config(folder: Path, gateways: Sequence[str], files: TlsFiles) -> dict[str, Any]:
    """The bootstrap; Envoy chooses its ports and writes the admin's to a file."""
    return {
        "admin": {"address": _address("127.0.0.1:0")},
        "static_resources": {"listeners": [_listener()], "clusters": [_cluster(gateways, files)]},
    }


def _address(address: str) -> dict[str, Any]:
    host, _, port = address.rpartition(":")
    return {"socket_address": {"address": host, "port_value": int(port)}}


def _listener() -> dict[str, Any]:
    route = {
        "cluster": "gateways",
        "timeout": "0s",
        "retry_policy": {
            "retry_on": "unavailable,resource-exhausted",
            "num_retries": 3,
            "retry_host_predicate": [
                {
                    "name": "envoy.retry_host_predicates.previous_hosts",
                    "typed_config": {"@type": f"{TYPE}.retry.host.previous_hosts.v3.PreviousHostsPredicate"},
                }
            ],
            "host_selection_retry_max_attempts": 5,
        },
    }
    manager = {
        "@type": f"{TYPE}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "codec_type": "HTTP2",
        "route_config": {
            "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": route}]}]
        },
        "http_filters": [{"name": "router", "typed_config": {"@type": f"{TYPE}.filters.http.router.v3.Router"}}],
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    return {"name": "in", "address": _address("127.0.0.1:0"), "filter_chains": [chain]}


def _cluster(gateways: Sequence[str], files: TlsFiles) -> dict[str, Any]:
    tls = {
        "@type": f"{TYPE}.transport_sockets.tls.v3.UpstreamTlsContext",
        "common_tls_context": {
            "alpn_protocols": ["h2"],
            "tls_certificates": [
                {"certificate_chain": {"filename": files.cert}, "private_key": {"filename": files.key}}
            ],
            "validation_context": {"trusted_ca": {"filename": files.ca}},
        },
    }
    protocol = {
        "@type": f"{TYPE}.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
    return {
        "name": "gateways",
        "type": "STATIC",
        "lb_policy": "ROUND_ROBIN",
        "typed_extension_protocol_options": {f"{NAME}.upstreams.http.v3.HttpProtocolOptions": protocol},
        "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": tls},
        "health_checks": [
            {
                "timeout": "5s", "interval": "1s", "no_traffic_interval": "1s",
                "unhealthy_threshold": 3, "healthy_threshold": 1, "grpc_health_check": {},
            }
        ],
        "load_assignment": {
            "cluster_name": "gateways",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _address(one)}} for one in gateways]}],
        },
    }  # fmt: skip


@asynccontextmanager
async def envoy(folder: Path, gateways: Sequence[str], files: TlsFiles) -> AsyncIterator[str]:
    """Runs Envoy; yields its address once all gateways pass their health checks."""
    bootstrap, admin_file = folder / "envoy.json", folder / "admin"
    bootstrap.write_text(json.dumps(config(folder, gateways, files)))
    flags = [
        "-c",
        str(bootstrap),
        "--admin-address-path",
        str(admin_file),
        "--use-dynamic-base-id",
        "--concurrency",
        "1",
    ]
    with running([str(PEERS / "bin" / "envoy"), *flags]):
        async with asyncio.timeout(START_S):
            while not (admin_file.is_file() and admin_file.read_text()):
                await asyncio.sleep(0.1)
            admin = f"http://{admin_file.read_text()}"
            while (await asyncio.to_thread(fetch, f"{admin}/clusters")).count("health_flags::healthy") < len(gateways):
                await asyncio.sleep(0.2)
            listeners = json.loads(await asyncio.to_thread(fetch, f"{admin}/listeners?format=json"))
            socket = listeners["listener_statuses"][0]["local_address"]["socket_address"]
        yield f"127.0.0.1:{socket['port_value']}"
