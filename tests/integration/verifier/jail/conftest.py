"""A host that was probed once, and slots of their own for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.verifier.jail import Host, JailUnavailable, Slot, probe
from tests.slots import number


@pytest.fixture(scope="session")
def host() -> Host:
    try:
        return probe()
    except JailUnavailable as error:
        # A machine that is to prove the jail must not pass without one.
        say = pytest.fail if os.environ.get("CI") else pytest.skip
        say(f"no jail on this machine: {error}")


@pytest.fixture
def slot(host: Host, tmp_path: Path) -> Iterator[Slot]:
    with Slot(f"temper-test-{os.getpid()}-{number()}", tmp_path, host) as made:
        yield made
