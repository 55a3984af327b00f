from __future__ import annotations

import math

import pytest

from services.scheduler.powers import exp2


@pytest.mark.parametrize("x", [-900.5, -33.25, -1.0, -0.5, 0.0, 0.1, 0.999999, 1.0, 7.3, 64.0])
def test_it_is_a_power_of_two(x: float) -> None:
    assert exp2(x) == pytest.approx(2.0**x, rel=1e-12)


def test_it_fades_to_nothing_and_is_exact_at_integers() -> None:
    assert exp2(-1e300) == 0.0
    assert exp2(-math.inf) == 0.0
    assert [exp2(float(n)) for n in range(-5, 5)] == [2.0**n for n in range(-5, 5)]
