from __future__ import annotations

from dataclasses import dataclass

from aiokafka.partitioner import murmur2
from hypothesis import given
from hypothesis import strategies as st

from services.runtime.batches import FULL, LARGE, grouped, partition_of, spread


@dataclass(frozen=True)
class Message:
    topic: str
    key: bytes | None
    value: bytes | None
    number: int = 0
    partition: int | None = None


@given(st.binary(max_size=70))
def test_a_key_is_hashed_as_the_client_hashes_it(key: bytes) -> None:
    assert spread(key) == murmur2(key) & 0x7FFFFFFF


messages = st.lists(
    st.tuples(
        st.sampled_from(["t", "u"]),
        st.sampled_from([b"a", b"b", b"c", b"d", None]),
        st.one_of(st.none(), st.sampled_from([0, 10, LARGE, FULL // 3])),
    ),
    max_size=40,
)


@given(messages)
def test_groups_hold_every_record_once_in_order_within_a_partition(
    drawn: list[tuple[str, bytes | None, int | None]],
) -> None:
    sent = [
        Message(topic, key, None if size is None else b"x" * size, number)
        for number, (topic, key, size) in enumerate(drawn)
    ]
    partitions = {"t": 3, "u": 1}
    groups = list(grouped(sent, partitions))
    assert sorted(message.number for group in groups for message in group) == list(range(len(sent)))
    order: dict[tuple[str, int], list[int]] = {}
    for group in groups:
        places = {(message.topic, partition_of(message, partitions)) for message in group}
        assert len(places) == 1
        if len(group) > 1:
            assert all(message.key is not None and message.value is not None for message in group)
            assert sum(len(message.value or b"") for message in group) <= FULL
        if group[0].key is not None:
            order.setdefault(places.pop(), []).extend(message.number for message in group)
    assert all(numbers == sorted(numbers) for numbers in order.values())


def test_a_partition_that_is_asked_for_wins() -> None:
    sent = [Message("t", b"a", b"x", number, partition=number % 2) for number in range(4)]
    groups = list(grouped(sent, {"t": 6}))
    assert [[message.number for message in group] for group in groups] == [[0, 2], [1, 3]]
