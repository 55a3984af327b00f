"""What the scheduler's shards tell each other. Invariant: no more is granted than there is, and a key has one home.

With one shard nothing of this is written. Resources are named `slots:<pool>`, `tokens:<pool>`, `verify` (samples under way)
and `train` (training groups).
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from schemas.base import Data, Event

Whole = Annotated[int, Meta(ge=0)]


class Line(Data, frozen=True, kw_only=True):
    """One resource, as a shard sees its own use of it."""

    held: Whole = 0
    """Units that are in use: leases of a pool; training groups accepted or under way."""
    want: Whole = 0
    """Units it could use now, those in use included."""
    first: Whole = 0
    """Those of `want` that go before what others want: evaluation."""
    aside: Whole = 0
    """Units in use by training of domains that could use no more now: they take no part in the sharing."""
    need: Whole = 0
    """Units that the task which would go first needs at once."""


class Standing(Data, frozen=True, kw_only=True):
    """How far the domains of a shard that could use more have come, by purpose."""

    weight: Annotated[float, Meta(ge=0.0)] = 0.0
    """Sum of their effective weights."""
    usage: Annotated[float, Meta(ge=0.0)] = 0.0
    """Sum of their decayed service seconds."""
    cost_s: Annotated[float, Meta(ge=0.0)] = 0.0
    """Service seconds that their next tasks are expected to take, the mean by weight."""


class Mixing(Data, frozen=True, kw_only=True):
    """What mixed sampling knows of a domain that has training tasks."""

    groups: Whole = 0
    mean: float = 0.0
    """Mean score."""
    variance: float = 0.0
    """Within a group."""
    informative: float = 0.0
    """Share of groups that teach."""
    cost_s: float = 0.0
    """Service seconds of a group."""


class ShardReported(Event, frozen=True, kw_only=True):
    """What a shard uses and could use, and the newest grant it obeys."""

    shard: Whole
    epoch: int
    seq: int
    """Its journal entry; of two reports the one with the higher (epoch, seq) is the newer."""
    obeys: Whole = 0
    """Number of the newest grant it has taken."""
    lines: dict[str, Line] = {}
    weight: Annotated[float, Meta(ge=0.0)] = 0.0
    """Sum of the weights of the domains that have work."""
    accepted: Whole = 0
    """Training groups that ended usable and complete."""
    at: float = 0.0
    """Time of the shard's journal when it was reckoned."""
    standings: dict[str, Standing] = {}
    """By purpose."""
    decisions: Whole = 0
    """Dispatches so far."""
    mixing: dict[str, Mixing] | None = None
    """By domain; unset: as it was."""


class CreditsGranted(Event, frozen=True, kw_only=True):
    """How much each shard may use from now on; replaces every grant with a lower number."""

    number: Annotated[int, Meta(ge=1)]
    credits: dict[str, tuple[int, ...]] = {}
    """Resource -> units by shard."""
    mix: dict[str, float] = {}
    """Domain -> new factor on its weight; a domain that is not named keeps its own."""


class KeyAsk(Data, frozen=True, kw_only=True):
    """A submission that waits for word on its idempotency key."""

    key: str
    task: str
    content: str
    """Digest of the submission without the task's id, in hex."""
    claim: bool = True
    """Take the key if it is free; else only look."""


class KeysAsked(Event, frozen=True, kw_only=True):
    """Is the key free? Asked of the shard that is the key's home."""

    shard: Whole
    asks: tuple[KeyAsk, ...] = ()


class KeyAnswer(Data, frozen=True, kw_only=True):
    """Whose a key is."""

    task: str
    """The task that asked."""
    key: str
    first: str = ""
    """The task that has the key; empty: nobody."""
    content: str = ""
    """Digest of that task's submission, in hex."""


class KeysAnswered(Event, frozen=True, kw_only=True):
    """Answers of a key's home, in the order in which it was asked."""

    shard: Whole
    answers: tuple[KeyAnswer, ...] = ()
