"""Publishes when the certificates in use expire."""

import asyncio

from services.common.metrics.catalogue import ServiceMetrics
from services.common.serving.tls import TlsFiles, expiry


def observe_certificates(metrics: ServiceMetrics, files: TlsFiles) -> None:
    """Sets certificate_expiry_timestamp_seconds once for each certificate that can be read; 0 for one that cannot."""
    for path in (files.cert, files.ca):
        if path:
            try:
                seconds = expiry(path)
            except (OSError, ValueError):
                seconds = 0.0
            metrics.certificate_expiry_timestamp_seconds[path].set(seconds)


async def follow_certificates(metrics: ServiceMetrics, files: TlsFiles) -> None:
    """Observes once a minute, because the files may be rotated; runs until cancelled, or not at all without TLS."""
    while files:
        await asyncio.to_thread(observe_certificates, metrics, files)
        await asyncio.sleep(60.0)
