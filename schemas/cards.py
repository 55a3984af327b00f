"""The card of a domain. Invariant: a card that loads is complete and consistent; an unknown key is an error."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from schemas import plain
from schemas.tasks import Difficulty, Name, Sampling

Layer = Literal["foundation", "tool", "domain", "long_horizon"]
LAYERS: tuple[Layer, ...] = ("foundation", "tool", "domain", "long_horizon")
Family = Literal["code", "terminal", "document", "geometry", "call", "format", "stages"]
Positive = Annotated[float, Meta(gt=0.0)]
Bound = Annotated[float, Meta(gt=0.0, le=86_400.0)]
"""Seconds that something may take: a day at most, so that nothing waits for ever."""
Span = Annotated[float, Meta(gt=0.0, le=2_592_000.0)]
"""Seconds, 30 days at most: infinity is no figure."""
Share = Annotated[float, Meta(ge=0.0, le=1.0)]


Join = Literal["none", "all", "any", "mean"]
CHOICES: dict[str, tuple[str, ...]] = {
    "layer": LAYERS,
    "verifier.family": get_args(Family),
    "ladder.join": get_args(Join),
}
"""Key -> the words that it takes."""


class CardError(ValueError):
    """A card that cannot be used; the message names the file, the key and what to do."""


class Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of a card's tables."""


class Prompt(Strict, frozen=True, kw_only=True):
    """How a sample's prompt becomes the model's input."""

    template: str = "{prompt}"
    """`{prompt}` is replaced; everything else is literal."""
    system: str = ""


class SamplingTable(Sampling, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How attempts are sampled, as a card says it: the wire's struct, strict about keys."""


class VerifierTable(Strict, frozen=True, kw_only=True):
    """Which verifier family, and its settings."""

    family: Family
    settings: dict[str, Any] = {}


class Limits(Strict, frozen=True, kw_only=True):
    """Limits of each command that runs in the jail."""

    wall_s: Bound = 4.0
    cpu_s: Bound = 2.0
    memory_mib: Annotated[int, Meta(ge=4, le=1 << 24)] = 128
    """At least what a program needs to start."""
    pids: Annotated[int, Meta(ge=2, le=1 << 22)] = 32
    output_kib: Annotated[int, Meta(ge=1, le=1 << 20)] = 64
    disk_mib: Annotated[int, Meta(ge=1, le=1 << 24)] = 16
    network: str = "none"
    """`none`, or `allow:HOST:PORT[,HOST:PORT...]`: what the commands may reach, through the verifier's proxy."""


class Retry(Strict, frozen=True, kw_only=True):
    """Budgets for attempts beyond the first, one a kind of failure, and the backoff between them."""

    failures: Annotated[int, Meta(ge=0, le=100)] = 0
    """Attempts that ran and in which no sample passed."""
    infra: Annotated[int, Meta(ge=0, le=100)] = 3
    """Attempts lost with their worker, or for want of a verdict that infrastructure failed to give."""
    timeouts: Annotated[int, Meta(ge=0, le=100)] = 3
    """Attempts that ran and did not finish in their time."""
    kills: Annotated[int, Meta(ge=0, le=100)] = 2
    """Attempts that are known to have ended their worker by running out of memory; they count as `infra` too."""
    backoff_s: Annotated[float, Meta(ge=0.0, le=2_592_000.0)] = 0.5
    backoff_max_s: Span = 30.0


class Step(Strict, frozen=True, kw_only=True):
    """One rung of a ladder, as a table. At least one of the three is given."""

    difficulty: Difficulty | None = None
    """Of a new draw from the domain; None: the very task, with help."""
    hint: str = ""
    """Template of the prompt: `{prompt}` is replaced by it, `{start}` by the first half of the gold answer (new draws only)."""
    decompose: bool = False
    """Sub-task n is the first stages of the task, n growing: for the stages family, whose tasks have them."""


class Ladder(Strict, frozen=True, kw_only=True):
    """Simpler sub-tasks that replace a task which keeps failing."""

    after: Annotated[int, Meta(ge=1, le=100)] = 1
    """Consecutive failed attempts in the task before it is replaced."""
    steps: Annotated[tuple[Difficulty | Step, ...], Meta(max_length=16)] = ()
    """The rungs, downwards, each simpler than the one before: a difficulty, or a table (see Step). Rung n takes steps[n]."""
    children: Annotated[int, Meta(ge=1, le=8)] = 1
    join: Join = "none"
    """What becomes of the task that was replaced: `none`: it has ended as `degraded`; else it waits for its sub-tasks, and has
    succeeded if all, any, or on the mean at least `enough` did."""
    enough: Share = 0.5
    """Mean score of the sub-tasks at which a task with `join = "mean"` has succeeded."""
    climb: bool = True
    """Whether a sub-task that passed leads to a try one rung up, unless few on its rung pass."""


class Quota(Strict, frozen=True, kw_only=True):
    """Sampler slots at a time."""

    nominal: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    """What the domain owns; 0 is no limit, or within a cohort nothing of its own."""
    cohort: Annotated[str, Meta(max_length=128)] = ""
    """Domains with the same word here lend one another what they do not use; empty: none."""
    borrow: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    """What it may use of others in its cohort at most; unset: all they lend."""
    lend: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    """What others in its cohort may use of it at most; unset: all of it."""


class Request(Strict, frozen=True, kw_only=True):
    """What one attempt needs."""

    slots: Annotated[int, Meta(ge=1, le=4096)] = 1
    """Sampler slots that a group holds."""


class Deadline(Strict, frozen=True, kw_only=True):
    """Virtual deadline within the domain: first eligibility + min(slack * estimate, cap)."""

    estimate_s: Span = 5.0
    slack: Annotated[float, Meta(gt=0.0, le=1e6)] = 4.0
    cap_s: Span = 600.0


class Reward(Strict, frozen=True, kw_only=True):
    """Per-domain reward normalisation in the trainer."""

    scale_floor: Positive = 0.1
    decay: Annotated[float, Meta(ge=0.0, lt=1.0)] = 0.9


class Timeouts(Strict, frozen=True, kw_only=True):
    """Deadlines of the states an attempt goes through."""

    lease_s: Bound = 30.0
    """Silence after which an attempt is lost."""
    attempt_s: Span = 7200.0
    """From dispatch to the last sample, however often the lease is renewed."""
    verify_s: Bound = 120.0
    """From the samples, or from the last verified stage, to the verdicts."""
    children_s: Span = 7200.0
    """How long a task waits for its sub-tasks."""


class Card(Strict, frozen=True, kw_only=True):
    """One domain."""

    name: Name
    layer: Layer
    summary: Annotated[str, Meta(min_length=1, max_length=200)]
    generator: str = ""
    """`package.module:function`, or `file.py:function` beside the card."""
    dataset: str = ""
    """JSON Lines file beside the card: `prompt`, `spec`, `gold`, optional `difficulty`."""
    weight: Annotated[float, Meta(ge=0.001, le=1000.0)] = 1.0
    options: dict[str, Any] = {}
    prompt: Prompt = Prompt()
    sampling: SamplingTable = SamplingTable()
    verifier: VerifierTable
    limits: Limits = Limits()
    retry: Retry = Retry()
    ladder: Ladder = Ladder()
    quota: Quota = Quota()
    request: Request = Request()
    deadline: Deadline = Deadline()
    reward: Reward = Reward()
    timeouts: Timeouts = Timeouts()


def parse_card(text: str, where: str) -> Card:
    """The card in `text`; `where` names it in errors.

    Raises:
        CardError: not TOML, a missing, unknown or ill-typed key, or an inconsistent setting.
    """
    try:
        table = tomllib.loads(text)
        for name, value in table.items():
            if said := plain.fault(value, name):
                raise CardError(f"{where}: {said}")
        card = msgspec.convert(table, Card)
    except tomllib.TOMLDecodeError as error:
        raise CardError(f"{where}: not valid TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise CardError(f"{where}: {error}{_choices(str(error))}") from error
    if bool(card.generator) == bool(card.dataset):
        raise CardError(f"{where}: give exactly one of `generator` and `dataset`")
    if card.generator and ":" not in card.generator:
        raise CardError(
            f"{where}: generator {card.generator!r} must read `module:function` or `file.py:function`"
        )
    if "{prompt}" not in card.prompt.template:
        raise CardError(f"{where}: prompt.template must contain {{prompt}}")
    _check_ladder(card, where)
    _check_quota(card, where)
    if card.timeouts.attempt_s < card.timeouts.lease_s:
        raise CardError(
            f"{where}: timeouts.attempt_s = {card.timeouts.attempt_s:g} is less than timeouts.lease_s = "
            f"{card.timeouts.lease_s:g}, so that an attempt would be over before its first lease; raise it"
        )
    return card


def _choices(message: str) -> str:
    """What could have been written, where a word is none of a few."""
    if not message.startswith("Invalid enum value"):
        return ""
    words = next((words for place, words in CHOICES.items() if message.endswith(f"`$.{place}`")), ())
    return f"; choose one of {', '.join(words)}" if words else ""


def _check_quota(card: Card, where: str) -> None:
    """What cannot be meant, or would keep every task of the domain from ever being dispatched."""
    quota, slots = card.quota, card.request.slots
    if not quota.cohort and (quota.borrow is not None or quota.lend is not None):
        raise CardError(
            f"{where}: quota.borrow and quota.lend need a quota.cohort to borrow from and lend to"
        )
    if quota.lend is not None and quota.lend > quota.nominal:
        raise CardError(
            f"{where}: quota.lend = {quota.lend} is more than quota.nominal = {quota.nominal}; lower it or leave it out"
        )
    most = quota.nominal + (quota.borrow or 0) if quota.cohort else quota.nominal
    limited = quota.borrow is not None if quota.cohort else bool(quota.nominal)
    if limited and slots > most:
        raise CardError(
            f"{where}: request.slots = {slots} is more than the quota's {most}, so that no task would ever fit; "
            "raise the quota or lower request.slots"
        )


def rungs(ladder: Ladder) -> tuple[Step, ...]:
    """The steps of a ladder as tables."""
    return tuple(step if isinstance(step, Step) else Step(difficulty=step) for step in ladder.steps)


def _check_ladder(card: Card, where: str) -> None:
    """A ladder only goes down: each step is of lower difficulty than the one before, or gives more help at the same."""
    level, help_given = float("inf"), 0
    for number, step in enumerate(rungs(card.ladder)):
        name = f"{where}: ladder.steps[{number}]"
        gives = 2 if step.decompose else 1 if step.hint else 0
        new = level if step.difficulty is None else step.difficulty
        if step.difficulty is None and not gives:
            raise CardError(f"{name} gives no difficulty, hint or decompose; a rung needs one")
        if new > level or (new == level and gives <= help_given):
            raise CardError(
                f"{name} is not simpler than the step before, so the ladder would never end; "
                "lower its difficulty, or give a hint or decompose"
            )
        if step.hint and "{prompt}" not in step.hint:
            raise CardError(f"{name}.hint must contain {{prompt}}")
        if "{start}" in step.hint and step.difficulty is None:
            raise CardError(
                f"{name}.hint has {{start}}, which needs a difficulty: only new draws have a gold answer"
            )
        if step.decompose and card.verifier.family != "stages":
            raise CardError(f"{name} decomposes into stages, which family {card.verifier.family!r} has not")
        if step.decompose and step.hint:
            raise CardError(f"{name} has hint and decompose; make two steps of it")
        level, help_given = new, gives


def load_card(path: Path) -> Card:
    """The card in a file.

    Raises:
        CardError: unreadable, or not a card.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CardError(f"{path}: cannot be read: {error}") from error
    return parse_card(text, str(path))
