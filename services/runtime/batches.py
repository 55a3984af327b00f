"""Records of one call as few batches. Invariant: order is kept within a partition, and a key is where any client puts it.

Handing records over one by one costs the client a future, a timeout and a slow hash each: most of what a service that writes
thousands a second spends. A batch of records for one partition costs that once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Protocol

FEW = 8
"""Fewer records go one by one: they may share a request with those of others then."""
LARGE = 32 << 10
"""Bytes of a record that goes by itself."""
FULL = 128 << 10
"""Bytes of a batch, headers left out; well below the producer's own limit, so that all of it fits."""
OVERHEAD = 256
"""Bytes reckoned for a record's headers and frame."""
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


class Keyed(Protocol):
    """What is used of a record."""

    @property
    def topic(self) -> str:
        """Full name."""
        ...

    @property
    def key(self) -> bytes | None:
        """What decides the partition."""
        ...

    @property
    def value(self) -> bytes | None:
        """The record itself."""
        ...

    @property
    def partition(self) -> int | None:
        """Where it must go, if not by its key."""
        ...


@lru_cache(maxsize=1 << 16)
def spread(key: bytes) -> int:
    """Kafka's hash of a key (murmur2 of its reference client, sign bit cleared)."""
    length = len(key)
    words = length >> 2
    value = 0x9747B28C ^ length
    for word in struct.unpack_from(f"<{words}I", key):
        mixed = (word * _MULTIPLIER) & _MASK
        mixed = ((mixed ^ (mixed >> 24)) * _MULTIPLIER) & _MASK
        value = ((value * _MULTIPLIER) & _MASK) ^ mixed
    rest = key[words << 2 :]
    if rest:
        value = ((value ^ int.from_bytes(rest, "little")) * _MULTIPLIER) & _MASK
    value = ((value ^ (value >> 13)) * _MULTIPLIER) & _MASK
    return (value ^ (value >> 15)) & 0x7FFFFFFF


def grouped[M: Keyed](messages: Sequence[M], partitions: Mapping[str, int]) -> Iterator[list[M]]:
    """The records in groups, each of one partition, in order within it; `partitions`: topic -> how many it has.

    A group of more than one holds small records with a key only, and fits into one batch.
    """
    open_: dict[tuple[str, int], list[M]] = {}
    sizes: dict[tuple[str, int], int] = {}
    for message in messages:
        topic, key, value = message.topic, message.key, message.value
        if key is None:
            yield [message]  # no key, no order to keep
            continue
        partition = message.partition
        place = topic, spread(key) % partitions[topic] if partition is None else partition
        size = (0 if value is None else len(value)) + len(key) + OVERHEAD
        total = sizes.get(place, 0) + size
        alone = size > LARGE or value is None
        if (alone or total > FULL) and place in open_:
            yield open_.pop(place)
            total = size
        if alone:
            sizes.pop(place, None)
            yield [message]
            continue
        sizes[place] = total
        group = open_.get(place)
        if group is None:
            open_[place] = [message]
        else:
            group.append(message)
    yield from open_.values()


def partition_of(message: Keyed, partitions: Mapping[str, int]) -> int:
    """Where a record with a key belongs."""
    if message.partition is not None or message.key is None:
        return message.partition or 0
    return spread(message.key) % partitions[message.topic]
