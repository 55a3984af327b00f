"""Fixtures for every test: one embedded stack a session (an xdist worker), started when first asked for."""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING

import pytest

from services.runtime.stack import Stack

if TYPE_CHECKING:
    from collections.abc import Iterator

# Short intervals, so that compaction and retention can be watched in a test.
BROKER_CONFIG = {"log.cleaner.backoff.ms": "500"}


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The broker and Redis of this session; TEMPER_KAFKA and TEMPER_REDIS are honoured."""
    with Stack.start(tmp_path_factory.mktemp("stack"), kafka_config=BROKER_CONFIG) as running:
        yield running


@pytest.fixture(scope="session")
def kafka(stack: Stack) -> str:
    """Bootstrap address of the session's broker."""
    return stack.kafka


@pytest.fixture(scope="session")
def redis_url(stack: Stack) -> str:
    """URL of the session's Redis."""
    return stack.redis


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    """Prefix for topics, groups and keys, different for every test: tests share one broker and one Redis."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:40]
    return f"{name}-{uuid.uuid4().hex[:8]}."
