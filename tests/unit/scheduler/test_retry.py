from __future__ import annotations

import pytest

from schemas.cards import Ladder, Retry
from services.scheduler.degrade import retries
from services.scheduler.retry import backoff


def test_delays_double_with_jitter_that_the_cap_keeps() -> None:
    early = [backoff(f"t{n}", 1, 1, 1.0, 64.0) for n in range(200)]
    assert min(early) >= 1.0
    assert max(early) < 2.0
    late = [backoff(f"t{n}", 50, 5000, 1.0, 64.0) for n in range(200)]
    assert min(late) >= 32.0
    assert max(late) <= 64.0
    assert len({round(delay) for delay in late}) > 20, "delays at the cap must not come back together"


def test_delays_are_the_task_s_own_and_repeatable() -> None:
    assert backoff("t", 2, 2, 0.5, 30.0) == backoff("t", 2, 2, 0.5, 30.0)
    assert backoff("t", 2, 2, 0.5, 30.0) != backoff("u", 2, 2, 0.5, 30.0)


@pytest.mark.parametrize(("base", "cap"), [(0.0, 30.0), (60.0, 1.0), (1e-9, 1e9)])
def test_odd_settings_stay_within_the_cap(base: float, cap: float) -> None:
    for tries in (1, 3, 100_000):
        assert 0.0 <= backoff("t", 1, tries, base, cap) <= cap


def test_the_retry_budget_comes_before_the_ladder() -> None:
    ladder = Ladder(after=1, steps=(0.5,))
    assert retries(Retry(failures=1), ladder, "train", 1, below=1)
    assert not retries(Retry(failures=1), ladder, "train", 2, below=1)
    patient = Ladder(after=3, steps=(0.5,))
    assert retries(Retry(failures=0), patient, "train", 2, below=1)
    assert not retries(Retry(failures=0), patient, "train", 3, below=1)
    assert not retries(Retry(failures=0), patient, "train", 1, below=None), "no rung left"
    assert not retries(Retry(failures=9), patient, "eval", 1, below=None), "measured once"
