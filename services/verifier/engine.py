"""One verdict. Invariant: same task, card and submission, same digest; our faults and the card's are never a score."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from schemas.cards import Card
from schemas.cards import Limits as CardLimits
from schemas.tasks import Task
from schemas.verdicts import Verdict, clip, infra, invalid
from services.verifier import families
from services.verifier.answers import UnusableAnswerError, check_size
from services.verifier.jail import Jail, Job, Limits, Outcome
from services.verifier.network import Allow
from services.verifier.networked import Networked, allowed, told
from services.verifier.specs import SpecError

ANSWER_LIMIT = 65_536


def jail_limits(limits: CardLimits) -> Limits:
    """A card's limits as the jail takes them."""
    return Limits(
        wall_s=limits.wall_s,
        cpu_s=limits.cpu_s,
        memory_bytes=limits.memory_mib << 20,
        pids=limits.pids,
        output_bytes=limits.output_kib << 10,
        disk_bytes=limits.disk_mib << 20,
        file_bytes=limits.disk_mib << 20,
    )


def judge(
    task: Task,
    card: Card,
    submission: bytes,
    jail: Jail,
    answer_limit: int = ANSWER_LIMIT,
    *,
    size: int | None = None,
) -> Verdict:
    """The verdict on `submission` as an answer to `task`, whose domain `card` describes.

    A fault of the task or card and any exception of ours become `infra` verdicts with one line of evidence; an answer
    that is empty, not UTF-8 or longer than `answer_limit` bytes is `invalid`. `size`: the answer's where that alone
    decides and `submission` is not all of it.

    Raises:
        MemoryError: a check needs more than this process may have (bounds.py); nothing else, whatever it is given.
    """
    settings = card.verifier.settings

    def whole() -> Verdict:
        family, allow = prepared(task, card, len(submission) if size is None else size, answer_limit)
        if allow is None:
            verdict: Verdict = family.verify(task, settings, jail_limits(card.limits), submission, jail)
            return verdict
        networked = Networked(jail, allow)
        return told(family.verify(task, settings, jail_limits(card.limits), submission, networked), allow)

    return guarded(card, whole)


def prepared(task: Task, card: Card, size: int, answer_limit: int) -> tuple[Any, Allow | None]:
    """The family's module and the card's network, once task, card and the answer's size are found to be in order.

    Raises SpecError and UnusableAnswerError.
    """
    family = families.family(card.verifier.family)
    family.check_spec(task.spec, card.verifier.settings)
    allow = allowed(card.limits.network)
    check_size(size, answer_limit)
    return family, allow


def guarded[T](card: Card, find: Callable[[], T]) -> T | Verdict:
    """What `find` gives, or the verdict that its exception stands for. Raises MemoryError, and nothing else."""
    try:
        return find()
    except UnusableAnswerError as error:
        return invalid(clip(str(error)))
    except MemoryError:
        raise
    except SpecError as error:
        return infra(clip(f"card or task at fault in {card.name}: {error}"))
    except Exception as error:  # noqa: BLE001 (the boundary: a bug of ours must not become the model's score)
        return infra(
            clip(f"verifier fault in family {card.verifier.family}: {type(error).__name__}: {error}")
        )


def too_long(task: Task, card: Card, size: int, answer_limit: int) -> Verdict:
    """What `judge` says of an answer of `size` bytes, more than `answer_limit`, without the answer or a jail."""
    if size <= answer_limit:
        raise ValueError(f"an answer of {size} bytes is not longer than {answer_limit}")
    return judge(task, card, b"", _NoJail(), answer_limit, size=size)


class _NoJail:
    """For answers that are never looked at."""

    def run(self, job: Job) -> Outcome:
        """Never called."""
        raise RuntimeError(f"{job.argv[0]} was to run for an answer that is too long")
