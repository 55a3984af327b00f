"""Bringing policy versions into the engine. Invariant: one that is not what it claims to be is reported, never served."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from pathlib import Path

from schemas.tasks import PolicyRef
from services.sampler import canary
from services.sampler.engines.driver import Driver
from services.sampler.engines.port import Check, VersionRefusedError
from services.sampler.intake import Intake

WEIGHTS = "model.safetensors"
log = logging.getLogger(__name__)


class Versions:
    """Loads what the intake has decided to switch to."""

    def __init__(self, intake: Intake, driver: Driver, *, tolerance: float, max_model_len: int) -> None:
        self._intake, self._driver = intake, driver
        self._tolerance, self._max_model_len = tolerance, max_model_len
        self.refused: dict[str, str] = {}
        """Version -> reason, for the heartbeat."""
        self.difference = 0.0
        """Largest |log-probability difference| in the latest canary that was compared."""

    async def switch(self) -> bool:
        """Load `intake.switching`; False if it was refused, and the previous version serves on.

        Raises:
            EngineError: the engine has failed.
            ValueError: no switch has been decided.
        """
        policy = self._intake.switching
        if policy is None:
            raise ValueError("no switch has been decided")
        folder = Path(policy.uri)
        seen: list[float] = []
        try:
            check: Check | None = None
            if policy.digest:
                await asyncio.to_thread(verify_digest, policy)
                found = await asyncio.to_thread(canary.read, folder)
                check = canary.checker(found, self._tolerance, self._max_model_len, seen)
            await self._driver.load(policy.version, folder, check)
        except VersionRefusedError as error:
            log.error("policy version %d is refused: %s", policy.version, error)  # noqa: TRY400 (one line, by rule)
            self.refused[str(policy.version)] = str(error)
            self._intake.refuse(policy, str(error))
            return False
        finally:
            self.difference = seen[-1] if seen else self.difference
        self._intake.loaded(policy)
        return True


def verify_digest(policy: PolicyRef) -> None:
    """The weight file is the one that was published.

    Raises:
        VersionRefusedError: missing, unreadable, or another.
    """
    path = Path(policy.uri) / WEIGHTS
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise VersionRefusedError(f"{path}: cannot be read: {error.strerror}") from error
    if found != policy.digest:
        raise VersionRefusedError(
            f"{path}: its SHA-256 is {found[:12]}..., {policy.digest[:12]}... was published"
        )
