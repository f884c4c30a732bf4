"""Measures how late the event loop runs."""

import asyncio
import time

from services.common.metrics.catalogue import ServiceMetrics


async def observe_loop_lag(metrics: ServiceMetrics, interval_s: float = 0.5) -> None:
    """Sleeps again and again and observes how much longer than asked it took; runs until cancelled."""
    while True:
        before = time.monotonic()
        await asyncio.sleep(interval_s)
        metrics.event_loop_lag_seconds.observe(max(0.0, time.monotonic() - before - interval_s))
