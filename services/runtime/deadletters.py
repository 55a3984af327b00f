"""Records nobody could read. Invariant: the raw bytes are acknowledged in `<topic>.dlq` before the source offset is passed."""

from __future__ import annotations

import logging

from schemas.topics import all_topics
from services.runtime.errors import one_line
from services.runtime.producer import Producer
from services.runtime.wire import Headers, RawRecord, header

ERROR_LIMIT = 500
WITHOUT = frozenset(topic.name for topic in all_topics() if not topic.dead_letters)
"""Topics without a dead-letter topic: only observers read them."""

log = logging.getLogger(__name__)


async def bury(producer: Producer, raw: RawRecord, error: Exception, *, prefix: str) -> bool:
    """Write the record's raw key and value to the dead-letter topic, with where it came from and why it is there.

    False, and nothing written, where the topic has no dead-letter topic.

    Raises:
        ProducerError: not acknowledged in time; the source offset must not be passed then.
    """
    topic = raw.topic.removeprefix(prefix)
    reason = one_line(error)[:ERROR_LIMIT]
    if topic in WITHOUT or topic.endswith(".dlq"):
        log.warning(
            "%s/%d offset %d cannot be read and is skipped: %s", topic, raw.partition, raw.offset, reason
        )
        return False
    headers: Headers = [
        ("x-topic", topic.encode()),
        ("x-partition", str(raw.partition).encode()),
        ("x-offset", str(raw.offset).encode()),
        ("x-timestamp", str(raw.timestamp).encode()),
        ("x-error", reason.encode()),
        ("x-service", producer.name.encode()),
        ("traceparent", header(raw.headers, "traceparent").encode()),
        *(
            (f"source-{name}", value or b"")
            for name, value in raw.headers or ()
            if name in ("type", "schema", "content-type")
        ),
    ]
    await producer.send_raw(topic + ".dlq", raw.value, raw.key, headers)
    log.warning("%s/%d offset %d is a dead letter: %s", topic, raw.partition, raw.offset, reason)
    return True
