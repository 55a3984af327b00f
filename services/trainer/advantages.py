"""Group-relative advantages on a per-domain scale.

Invariant: masked members do not vote. A member without a score enters neither the baseline, nor the scale, nor the loss, and a
group that says nothing (constant, or fewer than two scores) changes no parameter and no scale.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

PAIR = 2
"""A single score has nothing to be compared with."""
DEFAULT_FLOOR = 0.1
DEFAULT_DECAY = 0.9


class RewardError(ValueError):
    """A reward that is not a finite number."""


class Norm(msgspec.Struct, frozen=True, kw_only=True):
    """How one domain's advantages are scaled; a card's `[reward]` table."""

    floor: float = DEFAULT_FLOOR
    decay: float = DEFAULT_DECAY


class Scored(msgspec.Struct, frozen=True, kw_only=True):
    """The rewards of one group, one entry a member; None is a masked member (an infrastructure fault)."""

    domain: str
    rewards: tuple[float | None, ...]


class Advantages(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch of groups teaches."""

    values: tuple[tuple[float | None, ...], ...]
    """As the input: one advantage a member, None where the member is masked, 0.0 throughout a group that says nothing."""
    informative: tuple[bool, ...]
    """Per group: whether it has two scores or more, and they differ."""
    scales: dict[str, float]
    """Running deviation of every domain seen so far; the state to carry to the next batch."""


def spread(rewards: Sequence[float | None], tolerance: float) -> float | None:
    """Population standard deviation of the valid rewards, or None when the group says nothing.

    Degeneracy is `max - min <= tolerance`, not a zero deviation, which rounding can hide.

    Raises:
        RewardError: a reward is NaN or infinite.
    """
    valid = [reward for reward in rewards if reward is not None]
    for reward in valid:
        if not math.isfinite(reward):
            raise RewardError(f"reward {reward!r} is not a finite number")
    if len(valid) < PAIR or max(valid) - min(valid) <= tolerance:
        return None
    mean = math.fsum(valid) / len(valid)
    return math.sqrt(math.fsum((reward - mean) ** 2 for reward in valid) / len(valid))


def advantages(
    groups: Sequence[Scored], scales: Mapping[str, float], norms: Mapping[str, Norm], *, tolerance: float
) -> Advantages:
    """Advantage (r - mean of the group) / max(floor, scale of the domain) of every member of a batch.

    The scale of a domain is an exponential moving average, one step a batch, of the mean within-group deviation of its
    informative groups; it starts at the first such mean. It is updated before it is used, so the order of groups in a batch
    does not matter.
    Dividing by a group's own deviation would blow the noise of a nearly constant group up to full size.

    Args:
        groups: the batch.
        scales: state after the previous batch.
        norms: floor and decay by domain; a domain that is missing has the defaults.
        tolerance: largest max - min of a constant group.

    Raises:
        RewardError: a reward is NaN or infinite.
    """
    deviations = [spread(group.rewards, tolerance) for group in groups]
    by_domain: dict[str, list[float]] = {}
    for group, deviation in zip(groups, deviations, strict=True):
        if deviation is not None:
            by_domain.setdefault(group.domain, []).append(deviation)
    updated = dict(scales)
    for domain, values in sorted(by_domain.items()):
        mean = math.fsum(values) / len(values)
        decay = norms.get(domain, Norm()).decay
        updated[domain] = mean if domain not in updated else decay * updated[domain] + (1.0 - decay) * mean
    return Advantages(
        values=tuple(
            _relative(group.rewards, None if deviation is None else _scale(group.domain, updated, norms))
            for group, deviation in zip(groups, deviations, strict=True)
        ),
        informative=tuple(deviation is not None for deviation in deviations),
        scales=updated,
    )


def _scale(domain: str, scales: Mapping[str, float], norms: Mapping[str, Norm]) -> float:
    return max(norms.get(domain, Norm()).floor, scales[domain])


def _relative(rewards: Sequence[float | None], scale: float | None) -> tuple[float | None, ...]:
    if scale is None:
        return tuple(None if reward is None else 0.0 for reward in rewards)
    valid = [reward for reward in rewards if reward is not None]
    mean = math.fsum(valid) / len(valid)
    return tuple(None if reward is None else (reward - mean) / scale for reward in rewards)
