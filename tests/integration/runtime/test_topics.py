"""What the broker has after `temper topics create` is what is declared."""

from __future__ import annotations

import asyncio

import pytest

from schemas.topics import all_topics
from services.runtime import retention, topics

pytestmark = pytest.mark.integration


def test_topics_are_made_with_the_settings_declared_for_them(
    kafka: str, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    declared = {prefix + topic.name: topic for topic in all_topics(shards=3)}

    async def made() -> tuple[dict[str, dict[str, tuple[str, bool]]], dict[str, int]]:
        await topics.create(kafka, prefix, shards=3)
        await topics.create(kafka, prefix, shards=3)
        async with topics.admin(kafka) as client:
            return await retention.settings(client, declared), await topics.partition_counts(kafka, declared)

    found, partitions = asyncio.run(made())
    for name, topic in declared.items():
        assert {key: found[name][key][0] for key in topic.config()} == topic.config(), name
        assert partitions[name] == topic.partitions, name
    assert found[prefix + "task-states"]["cleanup.policy"][0] == "compact,delete"
    assert not caplog.records, "a second time there is nothing to say"
