from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
from faststream import AckPolicy
from faststream.kafka import TestKafkaBroker

from schemas.base import Event
from schemas.checkpoints import CheckpointPromoted, CheckpointPublished
from schemas.envelope import Envelope
from schemas.events import BY_TOPIC
from schemas.tasks import PolicyRef
from services.runtime import broker as wiring
from services.runtime.wire import Record, pack

EVENT = CheckpointPublished(run="r", policy=PolicyRef(version=3, uri="u", digest="d"), step=3)


def value(event: Event = EVENT) -> bytes:
    return pack(event, id="i", key="r", occurred_at=1.0, producer="trainer")[0]


def test_observer_gets_records_and_skips_what_it_cannot_read() -> None:
    async def test() -> None:
        seen: list[Record] = []

        async def watch(record: Record) -> None:
            seen.append(record)

        broker = wiring.connect("nowhere:1", "p.", "sampler")
        wiring.observe(
            broker, "checkpoints", watch, prefix="p.", events=[CheckpointPublished, CheckpointPromoted]
        )
        wiring.SkipUnreadable.skipped.clear()
        odd = Envelope(
            id="i", type="FromTheFuture", key="k", occurred_at=1.0, producer="p", data=msgspec.Raw(b"{}")
        )
        async with TestKafkaBroker(broker) as memory:
            await memory.publish(b"\xff\xff", "p.checkpoints")
            await memory.publish(msgspec.json.encode(odd), "p.checkpoints")
            await memory.publish(value(), "p.checkpoints", key=b"r")
        assert [record.event for record in seen] == [EVENT]
        assert seen[0].topic == "checkpoints"
        assert wiring.SkipUnreadable.skipped == {"undecodable": 1, "unknown": 1}

    asyncio.run(test())


def test_every_subscriber_names_its_ack_policy_and_declares_no_topic() -> None:
    async def watch(record: Record) -> None:
        del record

    broker = wiring.connect("nowhere:1", "", "sampler")
    wiring.observe(broker, "checkpoints", watch)
    for subscriber in broker.subscribers:
        assert subscriber.ack_policy is AckPolicy.MANUAL
        assert [topic.declare for topic in cast("Any", subscriber)._topics] == [False]


def test_pages_show_the_events_fields() -> None:
    async def watch(record: Record) -> None:
        """Follow the policy."""
        del record

    broker = wiring.connect("nowhere:1", "", "sampler")
    wiring.observe(broker, "checkpoints", watch, events=[CheckpointPublished, CheckpointPromoted])
    document = msgspec.json.decode(wiring.pages(broker, "Temper sampler", "1"))
    text = str(document)
    assert "CheckpointPublished v1" in text
    assert "optimiser" in text.lower() or "digest" in text
    assert "$defs" not in text


def test_the_document_shows_every_topic_and_every_event() -> None:
    shown = msgspec.json.decode(wiring.document())
    assert set(shown["channels"]) == set(BY_TOPIC)
    for topic, events in BY_TOPIC.items():
        payload = shown["components"]["schemas"][f"{topic}:Message:Payload"]
        variants = payload.get("anyOf", [payload])
        for event, variant in zip(events, variants, strict=True):
            assert set(variant["properties"]) == {field.name for field in msgspec.structs.fields(event)}
