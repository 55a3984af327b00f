"""A receiver of OTLP over HTTP, as a collector is. Invariant: what was exported is kept, span by span, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """One span."""

    service: str
    name: str
    trace: str
    span: str
    parent: str
    attributes: dict[str, str]


class Collector:
    """What has come so far, and where to send more."""

    def __init__(self) -> None:
        self.spans: list[Exported] = []
        self.endpoint = ""

    def take(self, body: bytes) -> None:
        """Keep the spans of one export."""
        request = ExportTraceServiceRequest()
        request.ParseFromString(body)
        for resource in request.resource_spans:
            about = {item.key: item.value.string_value for item in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [
                    Exported(
                        service=about["service.name"],
                        name=span.name,
                        trace=span.trace_id.hex(),
                        span=span.span_id.hex(),
                        parent=span.parent_span_id.hex(),
                        attributes={item.key: item.value.string_value for item in span.attributes},
                    )
                    for span in scope.spans
                ]


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on a free port, until the block ends."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            assert self.headers.get("content-encoding") is None
            assert self.path == "/v1/traces"
            collector.take(body)
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.end_headers()
            self.wfile.write(ExportTraceServiceResponse().SerializeToString())

        def log_message(self, *_: object) -> None:
            """Nothing to say."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, name="collector")
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10.0)
