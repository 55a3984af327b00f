"""Pacing by staleness (AReaL). Invariant: before each train dispatch, running + accepted < (eta + version + 1) * batch."""

from __future__ import annotations

from schemas.checkpoints import CheckpointPublished
from services.scheduler.effects import Effect
from services.scheduler.policies import Policies
from services.scheduler.state import State


def allowance(*, eta: int, version: int, groups_per_step: int, running: int, accepted: int) -> int:
    """Training groups that may be started now, at least 0."""
    return max(0, (eta + version + 1) * groups_per_step - accepted - running)


def train_allowance(state: State, policies: Policies) -> int:
    """Training groups that may be started now; 0 after the run's final checkpoint."""
    meta = state.meta
    if meta.final:
        return 0
    if policies.shards > 1:
        return max(0, meta.credits.get("train", 0) - meta.accepted - state.training)
    return allowance(
        eta=policies.eta,
        version=meta.version,
        groups_per_step=policies.groups_per_step,
        running=state.training,
        accepted=meta.accepted,
    )


def published(state: State, policies: Policies, event: CheckpointPublished) -> list[Effect]:
    """A new version: room for another step.

    The trainer has taken at least version * groups_per_step groups, whatever was counted here; a group it drops still
    fills its place in a step there, so that what is counted here never has to be taken back.
    """
    meta = state.meta
    if event.run != policies.run:
        state.count("other_run")
        return []
    if event.final:
        meta.final = True
    if event.policy.version < meta.version:
        state.count("old_version")
        return []
    meta.version = event.policy.version
    if policies.shards == 1:  # else the treasury reckons with it, over all shards
        meta.accepted = max(meta.accepted, meta.version * policies.groups_per_step)
    return []
