"""Effects of one entry as records. Invariant: leases and states carry the shard and the epoch of the incarnation that sends them.

The epoch is that of the sender, also for effects of a predecessor's last entry that are sent again: a sampler ignores what is
of an older epoch than it has seen of the shard in the same partition, and what is sent again must not be ignored.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from schemas.assignments import AttemptAssigned, AttemptRevoked
from schemas.ids import event_id
from schemas.states import TaskState
from services.runtime.producer import Outgoing
from services.scheduler.effects import Effect, Tell
from services.scheduler.grants import TOPIC
from services.scheduler.handlers import Draws, records_of


def outbox(
    effects: Iterable[Effect], catalog: Draws, *, shard: int, sender: int, epoch: int, seq: int
) -> list[Outgoing]:
    """Records for the effects of entry (`epoch`, `seq`) of a shard, in order; `sender`: epoch of this incarnation."""
    effects = list(effects)
    told = [effect for effect in effects if isinstance(effect, Tell)]
    others = [effect for effect in effects if not isinstance(effect, Tell)]
    records = [
        _stamped(record, shard, sender) for record in records_of(others, catalog, epoch=epoch, seq=seq)
    ]
    for number, effect in enumerate(told):
        name = event_id(effect.event.type_name(), shard, epoch, seq, number)
        records.append(Outgoing(topic=TOPIC, event=effect.event, key=str(shard), id=name))
    return records


def _stamped(record: Outgoing, shard: int, epoch: int) -> Outgoing:
    if not isinstance(record.event, AttemptAssigned | AttemptRevoked | TaskState):
        return record
    event = msgspec.structs.replace(record.event, shard=shard, epoch=epoch)
    return Outgoing(record.topic, event, record.key, record.id, record.traceparent)
