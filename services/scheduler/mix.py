"""Mixed sampling: which domain trains how much. Invariant: no domain's share falls below its floor, and shares add up to 1.

What is mixed are training groups that teach: those whose scores differ. A domain's wanted share is its layer's ratio, parted
by card weight and, if asked, by how much its rewards vary (policy improvement is bounded below by the reward variance, p (1 - p)
for passes; arXiv 2504.03380). Fair order deals in service seconds, so the factor on a domain's weight also makes up for what
a group costs there and for the groups that taught nothing; otherwise filtering would undo the mix (arXiv 2602.05547).

Factors change only in `update`, at counted decisions. A change keeps every domain's place in the fair order, and applies to
service from then on: fair order would otherwise pay for the new share of past service at once, with one domain for minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec

from services.scheduler.estimates import estimate
from services.scheduler.policies import Policies
from services.scheduler.powers import exp2
from services.scheduler.records import Domain, Evidence, TaskEntry
from services.scheduler.state import State, under_way

MEMORY = 8
"""Groups that the running averages of a domain remember; shorter than what the floor gives it in a run."""
HALF_LIFE = 512.0
"""Groups of all domains after which one counts half in the realised share."""
MOST = 4.0
"""Times a domain is sampled at most to make up for groups that taught nothing."""
DECISIONS_A_DOMAIN = 2
"""Decisions for each known domain between two updates, so that an update costs a decision next to nothing."""
LARGEST_VARIANCE = 0.25
"""Of scores in [0, 1]."""
CHEAPEST_S = 1e-3
HAIR = 0.005
"""A factor that would change by less is left, and its domain's record with it."""


def steers(policies: Policies) -> bool:
    """Whether factors are set at all; without, fair order goes by the cards' weights and service seconds."""
    return policies.mix == "variance" or bool(policies.layers)


def observe(state: State, policies: Policies, entry: TaskEntry, scores: Sequence[float]) -> None:
    """Take a complete training group, already charged for its slot, into its domain's evidence.

    `scores`: those of its members that have one.
    """
    record = state.domain(entry.domain)
    state.meta.observed += 1
    record.evidence = seen(
        record.evidence,
        scores,
        cost_s=entry.charged_s,
        degenerate=policies.degenerate,
        clock=state.meta.observed,
    )


def seen(
    before: Evidence, scores: Sequence[float], *, cost_s: float, degenerate: float, clock: int
) -> Evidence:
    """Evidence with one more group; the first groups weigh equally, then each weighs 1 / MEMORY."""
    count = len(scores)
    if not count:
        return before
    mean = sum(scores) / count
    spread = sum([(score - mean) * (score - mean) for score in scores])
    informative = max(scores) - min(scores) > degenerate
    groups = before.groups + 1
    weight = 1.0 / min(groups, MEMORY)
    variance = spread / (count - 1) if count > 1 else 0.0
    return Evidence(
        groups=groups,
        mean=before.mean + weight * (mean - before.mean),
        variance=before.variance + weight * (variance - before.variance),
        informative=before.informative + weight * (informative - before.informative),
        cost_s=before.cost_s + weight * (cost_s - before.cost_s),
        recent=faded(before, clock) + informative,
        at=clock,
    )


def faded(evidence: Evidence, clock: int) -> float:
    """Recent informative groups as of `clock` groups of all domains."""
    return evidence.recent * _fading(clock - evidence.at) if evidence.recent else 0.0


@lru_cache(maxsize=1 << 14)
def _fading(groups: int) -> float:
    return exp2(-groups / HALF_LIFE)


def appeal(evidence: Evidence, policies: Policies) -> float:
    """What a domain's weight counts for, in [floor, 1]: 1 while nothing is known, the floor outside the window."""
    floor = policies.mix_floor
    if policies.mix != "variance" or not evidence.groups:
        return 1.0
    if not learnable(evidence, policies):
        return floor
    return floor + (1.0 - floor) * min(1.0, evidence.variance / LARGEST_VARIANCE)


def learnable(evidence: Evidence, policies: Policies) -> bool:
    """Whether the mean score lies within the difficulty window; where nothing is known it does."""
    low, high = policies.mix_window
    return not evidence.groups or low <= evidence.mean <= high


def _parts(policies: Policies, names: Iterable[str], parts: Mapping[str, float]) -> dict[str, float]:
    """Shares of `names`: `parts` within each layer, the layers by their ratios or, without ratios, as the parts have it."""
    layers: dict[str, float] = {}
    for name in names:
        layer = policies.of(name).layer
        layers[layer] = layers.get(layer, 0.0) + parts[name]
    ratios = {layer: policies.layers.get(layer, total) for layer, total in layers.items()}
    whole = sum(ratios.values())
    shares = {}
    for name in names:
        layer = policies.of(name).layer
        shares[name] = ratios[layer] / whole * parts[name] / layers[layer]
    return shares


def wanted(state: State, policies: Policies, names: Sequence[str]) -> dict[str, float]:
    """Configured share of each of `names` in the groups that teach; they add up to 1, and within a layer to its ratio."""
    return _wanted(policies, {name: _evidence(state, name) for name in names})


def _wanted(policies: Policies, known: Mapping[str, Evidence]) -> dict[str, float]:
    parts = {name: policies.of(name).weight * appeal(evidence, policies) for name, evidence in known.items()}
    return _parts(policies, known, parts)


def realised(state: State, names: Sequence[str]) -> dict[str, float]:
    """Share of each of `names` in the recent groups that taught; all 0 while there are none."""
    recent = {name: faded(_evidence(state, name), state.meta.observed) for name in names}
    total = sum(recent.values())
    return {name: value / total if total else 0.0 for name, value in recent.items()}


def dispatched(state: State, policies: Policies, names: Sequence[str]) -> dict[str, float]:
    """Share of each of `names` in the groups to be dispatched, so that what is wanted is left after filtering."""
    return _dispatched(policies, {name: _evidence(state, name) for name in names})


def _dispatched(policies: Policies, known: Mapping[str, Evidence]) -> dict[str, float]:
    needed = {}
    for name, share in _wanted(policies, known).items():
        evidence = known[name]
        kept = evidence.informative if evidence.groups else 1.0
        if policies.mix == "variance" and not learnable(evidence, policies):
            kept = 1.0  # at the floor on purpose
        needed[name] = share / max(kept, 1.0 / MOST)
    base = _parts(policies, known, {name: policies.of(name).weight for name in known})
    return floored(needed, {name: policies.mix_floor * share for name, share in base.items()})


def floored(shares: Mapping[str, float], floors: Mapping[str, float]) -> dict[str, float]:
    """Shares that add up to 1 in the given proportions, but for those whose floor is higher; floors add up to at most 1."""
    held: set[str] = set()
    while True:
        free = 1.0 - sum(floors[name] for name in shares if name in held)
        rest = sum(share for name, share in shares.items() if name not in held)
        scale = max(0.0, free) / rest if rest > 0.0 else 0.0
        low = [name for name in shares if name not in held and shares[name] * scale < floors[name]]
        if not low:
            return {name: floors[name] if name in held else share * scale for name, share in shares.items()}
        held.update(low)


def update(state: State, policies: Policies) -> None:
    """Set the factors anew, if it is time. With more than one shard the treasury does, over all of them: see `grants`."""
    meta = state.meta
    if policies.shards > 1 or not steers(policies) or meta.decisions - meta.mixed < pause(policies):
        return
    meta.mixed = meta.decisions
    apply(state, factors(policies, known_of(state, policies)))


def pause(policies: Policies) -> int:
    """Decisions between two updates: every step's worth, or DECISIONS_A_DOMAIN for each domain."""
    return max(policies.groups_per_step, DECISIONS_A_DOMAIN * len(policies.domains))


def known_of(state: State, policies: Policies) -> dict[str, Evidence]:
    """The evidence about each domain that may train now, its cost estimated where there is none."""
    return {
        name: msgspec.structs.replace(_evidence(state, name), cost_s=_cost_s(state, policies, name))
        for name in present(state, policies)
    }


def factors(policies: Policies, known: Mapping[str, Evidence]) -> dict[str, float]:
    """Factor on the weight of each of these domains, which are all that train; their weights keep their sum."""
    if not known:
        return {}
    seconds = {
        name: share * max(CHEAPEST_S, known[name].cost_s)
        for name, share in _dispatched(policies, known).items()
    }
    whole = sum(seconds.values())
    total = sum(policies.of(name).weight for name in known)
    return {name: seconds[name] / whole * total / policies.of(name).weight for name in known}


def apply(state: State, chosen: Mapping[str, float]) -> None:
    """Set these factors."""
    for name, factor in chosen.items():
        _set(state, name, factor)


def moves(factor: float, before: float) -> bool:
    """Whether a factor is worth setting."""
    return abs(factor - before) > HAIR * before


def present(state: State, policies: Policies) -> list[str]:
    """Domains with training tasks that are ready or under way, by name: a share for any other would be nobody's."""
    found = {
        domain
        for (_, purpose), lanes in state.lanes.items()
        if purpose == "train"
        for domain, lane in lanes.items()
        if lane.ready
    }
    found.update(entry.domain for entry in under_way(state) if entry.purpose == "train")
    return sorted(found & policies.domains.keys())


def _set(state: State, name: str, factor: float) -> None:
    known = state.domains.get(name)
    before = 1.0 if known is None else known.mix
    if not moves(factor, before):
        return
    record: Domain = state.domain(name)
    record.mix = factor
    # Usage is compared per weight: scaled with it, the domain's place stays and only what follows costs it less or more.
    for share in record.shares.values():
        share.usage *= factor / before


def _evidence(state: State, name: str) -> Evidence:
    record = state.domains.get(name)
    return Evidence() if record is None else record.evidence


def _cost_s(state: State, policies: Policies, name: str) -> float:
    evidence = _evidence(state, name)
    if evidence.groups:
        return max(CHEAPEST_S, evidence.cost_s)
    return max(CHEAPEST_S, estimate(state.domains.get(name), policies.of(name).deadline))


def report(state: State, policies: Policies) -> dict[str, dict[str, float]]:
    """Wanted and realised share and the factor, for each domain that may train now."""
    names = present(state, policies)
    want, real = wanted(state, policies, names), realised(state, names)
    return {
        name: {
            "wanted": want[name],
            "realised": real[name],
            "factor": state.domains[name].mix if name in state.domains else 1.0,
        }
        for name in names
    }


def by_layer(policies: Policies, shares: Mapping[str, Mapping[str, float]], key: str) -> dict[str, float]:
    """Sum of one column of a `report` by layer."""
    found: dict[str, float] = {}
    for name, row in shares.items():
        layer = policies.of(name).layer
        found[layer] = found.get(layer, 0.0) + row[key]
    return dict(sorted(found.items()))
