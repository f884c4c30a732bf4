"""Keeps what a gateway tells of its calls: spans and lines of the log."""

import json
import logging
from collections.abc import Sequence
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from services.common.serving import logs


class Kept(SpanExporter):
    """Spans, as they would be sent."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans += spans
        return SpanExportResult.SUCCESS


class Lines(logging.Handler):
    """The lines of calls, as the log has them."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logs.JsonFormatter("gateway"))
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(text) for text in self.texts]
