"""Ending Kafka clients. Invariant: closing never hangs and never hides the failure that led to it."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from aiokafka.errors import KafkaError

STOP_S = 10.0
log = logging.getLogger(__name__)


class Client(Protocol):
    """Any aiokafka client."""

    async def stop(self) -> None:
        """Disconnect."""


async def close(client: Client, what: str) -> None:
    """Stop a client within a deadline; a failure to do so is logged, for nothing can be done about it any more."""
    try:
        await asyncio.wait_for(client.stop(), STOP_S)
    except (KafkaError, TimeoutError, OSError) as error:
        log.warning("%s did not stop cleanly: %s", what, error or type(error).__name__)
    except asyncio.CancelledError:
        # The client awaits tasks of its own that it has cancelled; that is no cancellation of ours.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
