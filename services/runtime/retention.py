"""What the broker may delete by itself. Invariant: nothing of a guarded topic; there the scheduler alone deletes, by offset.

Broker settings are read in one request. A topic that an earlier version made with a retention time is put right, by the
broker's older call that replaces all settings of a topic, so those that differ from the broker's defaults are sent along.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.errors import KafkaError, for_code
from aiokafka.structs import TopicPartition

from schemas.topics import DAY_MS, Topic
from services.runtime.errors import Unavailable

DEADLINE_S = 30.0
OWN = 1
"""Source of a setting that was made for the topic itself."""
log = logging.getLogger(__name__)


class TopicError(Unavailable):
    """A topic is missing or not as declared."""


def limits(settings: Mapping[str, str]) -> str:
    """What of a topic's settings lets the broker delete records by itself, as words; empty if nothing does."""
    if "delete" not in settings.get("cleanup.policy", "delete"):
        return ""
    found = []
    if int(settings.get("retention.ms", "-1")) >= 0:
        found.append(f"after {int(settings['retention.ms']) / DAY_MS:g} days")
    if int(settings.get("retention.bytes", "-1")) >= 0:
        found.append(f"beyond {settings['retention.bytes']} bytes a partition")
    return " and ".join(found)


async def settings(client: Any, names: Iterable[str]) -> dict[str, dict[str, tuple[str, bool]]]:
    """Topic -> setting -> (value, whether it was made for this topic).

    Raises:
        TopicError: the broker does not say.
    """
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    try:
        responses = await asyncio.wait_for(client.describe_configs(resources), DEADLINE_S)
    except (KafkaError, TimeoutError) as error:
        raise TopicError(f"the settings of topics cannot be read: {error or type(error).__name__}") from error
    found: dict[str, dict[str, tuple[str, bool]]] = {}
    for response in responses:
        for code, message, _, name, entries, *_ in response.resources:
            if code:
                raise TopicError(
                    f"topic {name}: its settings cannot be read: {message or for_code(code).__name__}"
                )
            found[name] = {entry[0]: (entry[1] or "", entry[3] == OWN) for entry in entries}
    return found


async def align(client: Any, declared: Mapping[str, Topic]) -> None:
    """Compare existing topics (by full name) with their declaration; guarded ones are made to keep everything.

    Raises:
        TopicError: a guarded topic may lose records and the broker does not let that be changed.
    """
    found = await settings(client, declared)
    for name, topic in sorted(declared.items()):
        plain = {key: value for key, (value, _) in found.get(name, {}).items()}
        if topic.guarded and (how := limits(plain)):
            own = {key: value for key, (value, mine) in found[name].items() if mine}
            await _keep(client, name, own, how)
        elif not topic.guarded and all(
            "delete" in policy for policy in (topic.cleanup, plain.get("cleanup.policy", "delete"))
        ):
            is_now = int(plain.get("retention.ms", topic.retention_ms))
            if is_now != topic.retention_ms:
                log.warning(
                    "topic %s keeps its records %s, %s is declared; change it on the broker, or leave it so",
                    name,
                    _days(is_now),
                    _days(topic.retention_ms),
                )


async def _keep(client: Any, name: str, own: dict[str, str], how: str) -> None:
    wanted = own | {"retention.ms": "-1", "retention.bytes": "-1"}
    resource = ConfigResource(ConfigResourceType.TOPIC, name, wanted)
    try:
        responses = await asyncio.wait_for(client.alter_configs([resource]), DEADLINE_S)
        failed = [for_code(entry[0]) for response in responses for entry in response.resources if entry[0]]
    except (KafkaError, TimeoutError) as error:
        failed = [type(error)]
    if failed:
        raise TopicError(
            f"topic {name}: the broker deletes its records {how}, and refuses to change that ({failed[0].__name__}); "
            "set retention.ms and retention.bytes to -1, the scheduler deletes what it needs no more"
        )
    log.warning("topic %s: its records were deleted %s; they are kept now", name, how)


async def unguarded(client: Any, declared: Mapping[str, Topic]) -> list[str]:
    """One line for each guarded topic (by full name) of which the broker deletes records by itself.

    Raises:
        TopicError: the broker does not say.
    """
    guarded = [name for name, topic in declared.items() if topic.guarded]
    found = await settings(client, guarded)
    lines = []
    for name in sorted(guarded):
        how = limits({key: value for key, (value, _) in found.get(name, {}).items()})
        if how:
            lines.append(
                f"topic {name}: the broker deletes its records {how}, but the scheduler rebuilds its state from them; "
                "run `temper topics create`, or set its retention.ms and retention.bytes to -1"
            )
    return lines


async def trim(client: Any, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Delete all records before these offsets; where each partition begins now.

    Raises:
        Unavailable: the broker does not do it.
    """
    if not before:
        return {}
    wanted = {tp: RecordsToDelete(offset) for tp, offset in before.items()}
    try:
        begins = await asyncio.wait_for(client.delete_records(wanted), DEADLINE_S)
    except (KafkaError, TimeoutError) as error:
        raise Unavailable(
            f"old records cannot be deleted: {type(error).__name__}: {error}; is the client allowed to?"
        ) from error
    return {tp: int(offset) for tp, offset in begins.items()}


def _days(milliseconds: int) -> str:
    return "for ever" if milliseconds < 0 else f"for {milliseconds / DAY_MS:g} days"
