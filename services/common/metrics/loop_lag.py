"""Measures how late the event loop runs."""

import asyncio
import time

from services.common.metrics.catalogue import ServiceMetrics

INTERVAL_S = 0.5


async def observe_loop_lag(metrics: ServiceMetrics) -> None:
    """Sleeps again and again and observes how much longer than asked it took; runs until cancelled."""
    while True:
        before = time.monotonic()
        await asyncio.sleep(INTERVAL_S)
        metrics.event_loop_lag_seconds.observe(max(0.0, time.monotonic() - before - INTERVAL_S))
