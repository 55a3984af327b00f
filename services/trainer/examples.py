"""Complete groups as what the loss reads, and a batch's figures. Invariant: token ids and log-probabilities pass untouched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from schemas.cards import Card
from schemas.trajectories import TrajectoryCompleted, oldest_version
from services.trainer.advantages import Advantages, Scored
from services.trainer.batch import Answer, Unit
from services.trainer.group import Group

UNKNOWN_LAYER = "unknown"
"""Layer of a domain without a card in this installation."""


def scored(groups: Sequence[Group]) -> list[Scored]:
    """The rewards of each group, masked members as None."""
    return [
        Scored(domain=group.domain, rewards=tuple(member.reward for member in group.members))
        for group in groups
    ]


def temperature_of(sample: TrajectoryCompleted, cards: Mapping[str, Card]) -> float:
    """Temperature of the distribution whose log-probabilities the sampler logged: the task's, else the card's, else 1.

    Greedy samples (0) carry those of the untempered distribution.
    """
    sampling = sample.task.sampling
    if sampling is None and sample.task.domain in cards:
        sampling = cards[sample.task.domain].sampling
    return sampling.temperature if sampling is not None and sampling.temperature > 0.0 else 1.0


def units(
    groups: Sequence[Group], advantages: Advantages, version: int, cards: Mapping[str, Card]
) -> list[Unit]:
    """One unit a group (one a prompt, should members of a group differ in it); `version` is the policy being trained."""
    result: list[Unit] = []
    for group, values in zip(groups, advantages.values, strict=True):
        shared: dict[tuple[tuple[int, ...], float], list[Answer]] = {}
        for member, advantage in zip(group.members, values, strict=True):
            sample = member.trajectory
            if sample is None or advantage is None:
                continue
            key = (tuple(sample.prompt_ids), temperature_of(sample, cards))
            shared.setdefault(key, []).append(
                Answer(
                    tokens=tuple(sample.token_ids),
                    mu=tuple(sample.logprobs),
                    advantage=advantage,
                    fresh=tuple(
                        span.version == version for span in sample.spans for _ in range(span.start, span.end)
                    ),
                )
            )
        for (prompt, temperature), answers in shared.items():
            result.append(Unit(prompt=prompt, answers=tuple(answers), temperature=temperature))
    return result


def figures(
    groups: Sequence[Group], advantages: Advantages, version: int, cards: Mapping[str, Card]
) -> dict[str, float]:
    """Rewards (mean over valid samples, overall, by domain and by layer), sizes, degenerate share and staleness in versions.

    `staleness_mean` is over tokens, `staleness_max` over the oldest token of each sample.
    """
    rewards: dict[str, list[float]] = {}
    lag, tokens, oldest, masked = 0, 0, 0, 0
    for group in groups:
        card = cards.get(group.domain)
        layer = card.layer if card is not None else UNKNOWN_LAYER
        for member in group.members:
            sample, reward = member.trajectory, member.reward
            if sample is None or reward is None:
                masked += 1
                continue
            for name in ("reward_mean", f"reward/{group.domain}", f"layer/{layer}"):
                rewards.setdefault(name, []).append(reward)
            tokens += len(sample.token_ids)
            lag += sum((version - span.version) * (span.end - span.start) for span in sample.spans)
            oldest = max(oldest, version - oldest_version(sample.spans))
    result = {name: sum(values) / len(values) for name, values in rewards.items()}
    return result | {
        "groups": float(len(groups)),
        "samples": float(len(rewards.get("reward_mean", ()))),
        "masked": float(masked),
        "degenerate": advantages.informative.count(False) / max(1, len(groups)),
        "staleness_mean": lag / max(1, tokens),
        "staleness_max": float(oldest),
    }
