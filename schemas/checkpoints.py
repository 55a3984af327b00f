"""Policy versions. Invariant: a version is published once, complete, and named by the digest of its weights."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from schemas.base import Event
from schemas.tasks import PolicyRef


class CheckpointPublished(Event, frozen=True, kw_only=True):
    """A checkpoint lies complete at `policy.uri`; written after its atomic rename."""

    run: str
    policy: PolicyRef
    step: Annotated[int, Meta(ge=0)]
    """Optimiser steps that led to it; version 0 is the base model."""
    final: bool = False
    """No further version of this run follows."""
    groups: tuple[str, ...] = ()
    """Ids of the groups that the step consumed: a group is in one version at most."""
    metrics: dict[str, float] = {}
    """Figures of the step: loss, reward, tokens, seconds by phase, staleness, per-layer and per-domain reward."""


class CheckpointPromoted(Event, frozen=True, kw_only=True):
    """The evaluator found the version fit to serve."""

    run: str
    policy: PolicyRef
    reason: str = ""


class CheckpointRejected(Event, frozen=True, kw_only=True):
    """The version must not serve."""

    run: str
    policy: PolicyRef
    reason: str
