"""Traces and logs. Invariant: trace ids flow through headers, envelopes and logs even where nothing is exported.

Without OTEL_EXPORTER_OTLP_ENDPOINT (or OTEL_TRACES_EXPORTER=console) no exporter is installed: no traffic, no noise.
OTEL_SDK_DISABLED=true turns spans off altogether.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import structlog
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

Kind = Literal["internal", "producer", "consumer", "client", "server"]
Value = str | bool | int | float
_propagator = TraceContextTextMapPropagator()
_provider: TracerProvider | None = None
_NAME = "temper"


@dataclass(frozen=True)
class Span:
    """An open span."""

    traceparent: str
    """W3C context of the span; empty where tracing is off."""
    raw: trace.Span

    def set(self, **attributes: Value) -> None:
        """Attach attributes; `_` in names becomes `.`."""
        for name, value in attributes.items():
            self.raw.set_attribute(name.replace("_", "."), value)

    def fail(self, reason: str) -> None:
        """Mark the span as failed."""
        self.raw.set_status(StatusCode.ERROR, reason)


def setup(service: str, *, worker: str = "", level: str | None = None) -> None:
    """Install the tracer provider and the log format of this process; call once, before the first span.

    Logs go to standard error: JSON lines when TEMPER_LOG=json or standard error is no terminal and TEMPER_LOG is unset
    to `text`, plain lines otherwise. TEMPER_LOG_LEVEL names the level (default INFO).
    """
    _logs(service, level or os.environ.get("TEMPER_LOG_LEVEL", "INFO"))
    setup_traces(service, worker=worker)


def setup_traces(service: str, *, worker: str = "") -> None:
    """Install the tracer provider only, for a program that writes to a terminal itself; a second call changes nothing."""
    global _provider  # noqa: PLW0603 (one provider a process)
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or _provider is not None:
        return
    resource = Resource.create(
        {"service.name": f"{_NAME}-{service}", "service.instance.id": worker or str(os.getpid())}
    )
    provider = TracerProvider(resource=resource)
    if os.environ.get("OTEL_TRACES_EXPORTER") == "console":
        provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter(out=sys.stderr)))
    elif os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or os.environ.get(
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
    ):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    _provider = provider


@contextmanager
def span(
    name: str,
    *,
    parent: str = "",
    kind: Kind = "internal",
    attributes: Mapping[str, Value] | None = None,
    start_s: float | None = None,
) -> Iterator[Span]:
    """Open a span; it is the current one inside the block, and failed if the block raises.

    `parent` is a W3C traceparent; empty takes the current span. `start_s` (seconds since the epoch) opens it
    retroactively, for waits that are known only when they end.
    """
    tracer = trace.get_tracer(_NAME)
    context = context_of(parent) if parent else None
    with tracer.start_as_current_span(
        name,
        context=context,
        kind=SpanKind[kind.upper()],
        attributes=dict(attributes or {}),
        start_time=None if start_s is None else int(start_s * 1e9),
    ) as opened:
        yield Span(traceparent=_traceparent(opened) or parent, raw=opened)


def submitted(task: str, domain: str) -> str:
    """Begin the trace of a task that is being submitted, by a span that ends at once; its W3C context."""
    attributes: dict[str, Value] = {"temper.task": task, "temper.domain": domain}
    with span("submit task", kind="producer", attributes=attributes) as root:
        return root.traceparent


def current_traceparent() -> str:
    """W3C context of the current span, empty outside any."""
    return _traceparent(trace.get_current_span())


def context_of(traceparent: str) -> Context:
    """The OpenTelemetry context that a W3C traceparent names."""
    return _propagator.extract({"traceparent": traceparent}, context=Context())


def shutdown(timeout_s: float = 5.0) -> None:
    """Flush what is to be exported, within `timeout_s`; call after the broker connection is closed."""
    if _provider is not None:
        _provider.force_flush(int(timeout_s * 1000))


def _traceparent(opened: trace.Span) -> str:
    context = opened.get_span_context()
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def _add_trace(_: object, __: str, entry: structlog.typing.EventDict) -> structlog.typing.EventDict:
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        entry["trace_id"] = f"{context.trace_id:032x}"
        entry["span_id"] = f"{context.span_id:016x}"
    return entry


def _logs(service: str, level: str) -> None:
    style = os.environ.get("TEMPER_LOG", "")
    as_json = style == "json" or (style != "text" and not sys.stderr.isatty())

    def add_service(_: object, __: str, entry: structlog.typing.EventDict) -> structlog.typing.EventDict:
        entry["service"] = service
        return entry

    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        add_service,
        _add_trace,
        structlog.stdlib.ExtraAdder(),
    ]
    renderer: Any = (
        structlog.processors.JSONRenderer(sort_keys=True)
        if as_json
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            *([structlog.processors.format_exc_info] if as_json else []),
            renderer,
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # The client reports every reconnect at ERROR although it heals them itself; what matters reaches us as exceptions.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL if level.upper() != "DEBUG" else logging.DEBUG)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
