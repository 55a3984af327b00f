from __future__ import annotations

import math

import pytest

from services.trainer.advantages import Advantages, Norm, RewardError, Scored, advantages


def one(
    *rewards: float | None, scales: dict[str, float] | None = None, norm: Norm | None = None
) -> Advantages:
    return advantages(
        [Scored(domain="d", rewards=rewards)], scales or {}, {"d": norm} if norm else {}, tolerance=1e-6
    )


def test_baseline_is_the_group_mean_and_the_scale_is_the_domains() -> None:
    result = one(1.0, 0.0, 0.0, 1.0)
    assert result.scales == {"d": 0.5}
    assert result.values == ((1.0, -1.0, -1.0, 1.0),)


@pytest.mark.parametrize("rewards", [(0.3, 0.3 + 1e-7, 0.3), (1.0,), (0.0, 0.0), (1.0, None, None)])
def test_a_group_that_says_nothing_gives_zero_and_moves_no_scale(rewards: tuple[float | None, ...]) -> None:
    result = one(*rewards, scales={"d": 0.4})
    assert all(value in (None, 0.0) for value in result.values[0])
    assert result.scales == {"d": 0.4}
    assert result.informative == (False,)


def test_masked_members_do_not_vote() -> None:
    with_fault, without = one(1.0, 0.0, None, 0.5), one(1.0, 0.0, 0.5)
    assert with_fault.scales == without.scales
    assert [value for value in with_fault.values[0] if value is not None] == list(without.values[0])
    assert with_fault.values[0][2] is None


def test_scale_decays_once_a_batch_whatever_the_order_and_has_a_floor() -> None:
    groups = [Scored(domain="d", rewards=(1.0, 0.0)), Scored(domain="d", rewards=(0.3, 0.1))]
    forward = advantages(groups, {"d": 0.2}, {"d": Norm(decay=0.5, floor=0.1)}, tolerance=1e-6)
    backward = advantages(groups[::-1], {"d": 0.2}, {"d": Norm(decay=0.5, floor=0.1)}, tolerance=1e-6)
    assert forward.scales == backward.scales == {"d": pytest.approx(0.5 * 0.2 + 0.5 * (0.5 + 0.1) / 2)}
    assert forward.values == backward.values[::-1]
    small = one(0.51, 0.5, norm=Norm(floor=0.25))
    assert small.values[0][0] == pytest.approx(0.005 / 0.25)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_reward_that_is_no_number_is_refused(bad: float) -> None:
    with pytest.raises(RewardError, match="not a finite number"):
        one(0.5, bad)
