"""The card of a domain. Invariant: a card that loads is complete and consistent; an unknown key is an error."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from schemas.tasks import Difficulty, Name, Sampling

Layer = Literal["foundation", "tool", "domain", "long_horizon"]
LAYERS: tuple[Layer, ...] = ("foundation", "tool", "domain", "long_horizon")
Family = Literal["code", "terminal", "document", "geometry", "call", "format", "stages"]
Positive = Annotated[float, Meta(gt=0.0)]
Bound = Annotated[float, Meta(gt=0.0, le=86_400.0)]
"""Seconds that something may take: a day at most, so that nothing waits for ever."""
Share = Annotated[float, Meta(ge=0.0, le=1.0)]


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
    memory_mib: Annotated[int, Meta(ge=1)] = 128
    pids: Annotated[int, Meta(ge=1)] = 32
    output_kib: Annotated[int, Meta(ge=1)] = 64
    disk_mib: Annotated[int, Meta(ge=1)] = 16
    network: str = "none"
    """`none`, or `allow:HOST:PORT[,HOST:PORT...]`: what the commands may reach, through the verifier's proxy."""


class Retry(Strict, frozen=True, kw_only=True):
    """Budgets for attempts beyond the first, and the backoff between them."""

    failures: Annotated[int, Meta(ge=0, le=100)] = 0
    infra: Annotated[int, Meta(ge=0, le=100)] = 3
    backoff_s: Annotated[float, Meta(ge=0.0)] = 0.5
    backoff_max_s: Positive = 30.0


class Ladder(Strict, frozen=True, kw_only=True):
    """Simpler sub-tasks that replace a task which keeps failing."""

    after: Annotated[int, Meta(ge=1)] = 1
    """Consecutive failed attempts in the task before it is replaced."""
    steps: tuple[Difficulty, ...] = ()
    """Difficulties of the rungs, downwards; rung n takes steps[n]."""
    children: Annotated[int, Meta(ge=1, le=8)] = 1


class Quota(Strict, frozen=True, kw_only=True):
    """Leases at a time; 0 is no limit."""

    nominal: Annotated[int, Meta(ge=0)] = 0


class Deadline(Strict, frozen=True, kw_only=True):
    """Virtual deadline within the domain: first eligibility + min(slack * estimate, cap)."""

    estimate_s: Positive = 5.0
    slack: Positive = 4.0
    cap_s: Positive = 600.0


class Reward(Strict, frozen=True, kw_only=True):
    """Per-domain reward normalisation in the trainer."""

    scale_floor: Positive = 0.1
    decay: Annotated[float, Meta(ge=0.0, lt=1.0)] = 0.9


class Timeouts(Strict, frozen=True, kw_only=True):
    """Deadlines of the states an attempt goes through."""

    lease_s: Positive = 30.0
    verify_s: Positive = 120.0


class Card(Strict, frozen=True, kw_only=True):
    """One domain."""

    name: Name
    layer: Layer
    summary: Annotated[str, Meta(min_length=1, max_length=200)]
    generator: str = ""
    """`package.module:function`, or `file.py:function` beside the card."""
    dataset: str = ""
    """JSON Lines file beside the card: `prompt`, `spec`, `gold`, optional `difficulty`."""
    weight: Annotated[float, Meta(gt=0.0, le=1000.0)] = 1.0
    options: dict[str, Any] = {}
    prompt: Prompt = Prompt()
    sampling: SamplingTable = SamplingTable()
    verifier: VerifierTable
    limits: Limits = Limits()
    retry: Retry = Retry()
    ladder: Ladder = Ladder()
    quota: Quota = Quota()
    deadline: Deadline = Deadline()
    reward: Reward = Reward()
    timeouts: Timeouts = Timeouts()


def parse_card(text: str, where: str) -> Card:
    """The card in `text`; `where` names it in errors.

    Raises:
        CardError: not TOML, a missing, unknown or ill-typed key, or an inconsistent setting.
    """
    try:
        card = msgspec.convert(tomllib.loads(text), Card)
    except tomllib.TOMLDecodeError as error:
        raise CardError(f"{where}: not valid TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise CardError(f"{where}: {error}") from error
    if bool(card.generator) == bool(card.dataset):
        raise CardError(f"{where}: give exactly one of `generator` and `dataset`")
    if card.generator and ":" not in card.generator:
        raise CardError(
            f"{where}: generator {card.generator!r} must read `module:function` or `file.py:function`"
        )
    if "{prompt}" not in card.prompt.template:
        raise CardError(f"{where}: prompt.template must contain {{prompt}}")
    if list(card.ladder.steps) != sorted(card.ladder.steps, reverse=True):
        raise CardError(f"{where}: ladder.steps must go down, got {list(card.ladder.steps)}")
    return card


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
