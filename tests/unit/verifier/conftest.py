"""A jail that does what the test says, so that the families' decisions are tested without one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from schemas.tasks import Task
from services.verifier.jail import Change, Diff, Job, Limits, Outcome
from tests.unit.verifier.pools import drive  # noqa: F401 (a fixture)


class Scripted:
    """Gives the outcomes of a list in turn and remembers the jobs."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.outcomes, self.jobs = list(outcomes), list[Job]()

    def run(self, job: Job) -> Outcome:
        self.jobs.append(job)
        return self.outcomes.pop(0)


@pytest.fixture
def scripted() -> type[Scripted]:
    return Scripted


@pytest.fixture
def make_task() -> Callable[..., Task]:
    def make(spec: dict[str, Any], domain: str = "test.domain") -> Task:
        return Task(id="t1", domain=domain, prompt="p", spec=spec)

    return make


@pytest.fixture
def limits() -> Limits:
    return Limits()


@pytest.fixture
def change() -> Callable[..., Change]:
    def make(path: str, text: str | None = None, kind: str = "file") -> Change:
        raw = (text or "").encode()
        return Change(path, kind, 0o644, len(raw), hashlib.sha256(raw).hexdigest() if kind == "file" else "")

    return make


@pytest.fixture
def exited(change: Callable[..., Change]) -> Callable[..., Outcome]:
    """An outcome of exit 0 that created, changed and deleted these `path: text` (None: a folder)."""

    def make(
        created: dict[str, str | None] | None = None,
        changed: dict[str, str | None] | None = None,
        deleted: tuple[str, ...] = (),
        **more: Any,
    ) -> Outcome:
        def rows(given: dict[str, str | None] | None) -> tuple[Change, ...]:
            return tuple(change(p, t, "dir" if t is None else "file") for p, t in (given or {}).items())

        diff = Diff(rows(created), rows(changed), tuple(change(path) for path in deleted))
        facts: dict[str, Any] = {"cause": "exit", "exit_code": 0, "diff": diff} | more
        return Outcome(**facts)

    return make
