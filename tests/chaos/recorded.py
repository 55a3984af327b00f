"""A short real run that is kept: its log, its projection, and what its fold needs; and ways to change copies of it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from services.runtime.stack import Stack
from services.runtime.wire import Record
from tests.chaos.suite import log as logs
from tests.chaos.suite.audit import audit
from tests.chaos.suite.findings import Audit
from tests.chaos.suite.layout import Layout
from tests.chaos.suite.log import Log
from tests.chaos.suite.run import projection, settle
from tests.chaos.suite.site import Site, open_site

TASKS = 40
CARD = '[quota]\nnominal = 8\ncohort = "voices"'
Place = tuple[tuple[str, int], int]
"""Topic and partition, and index there."""


class Recorded(msgspec.Struct):
    """A short real run, whose domains form a cohort."""

    log: Log
    stored: dict[str, bytes]
    site: Site

    def check(self, log: Log | None = None, stored: dict[str, bytes] | None = None) -> Audit:
        """The audit, of another log or another projection where one is given."""
        return audit(
            self.log if log is None else log,
            self.site.policies,
            self.site.catalog,
            stored=self.stored if stored is None else stored,
        )

    def copy(self) -> Log:
        """The log, to be changed."""
        return Log(
            parts={place: list(records) for place, records in self.log.parts.items()},
            ends=dict(self.log.ends),
        )


async def play(folder: Path, stack: Stack) -> Recorded:
    """Run it."""
    layout = Layout(cards=dict.fromkeys(("echo", "song"), CARD))
    async with open_site(folder, stack.kafka, stack.redis, "audited.", layout) as site:
        site.scheduler()
        site.worker("worker-0")
        tasks = site.tasks(TASKS)
        await site.submit(*tasks)
        await site.submit(*tasks[:5])
        await settle(site)
        log = await logs.read(site.kafka, site.prefix)
        return Recorded(log, await projection(site), site)


def changed(record: Record, **fields: object) -> Record:
    """The record with other fields of its event."""
    return msgspec.structs.replace(record, event=msgspec.structs.replace(record.event, **fields))


def renamed(record: Record, name: str, **fields: object) -> Record:
    """The record under another envelope id, and otherwise changed."""
    envelope = msgspec.structs.replace(record.envelope, id=name)
    return msgspec.structs.replace(record, envelope=envelope, **fields)


def places(log: Log, kind: type) -> list[Place]:
    """Where events of a kind lie."""
    return [
        (place, index)
        for place, records in sorted(log.parts.items())
        for index, record in enumerate(records)
        if isinstance(record.event, kind)
    ]
