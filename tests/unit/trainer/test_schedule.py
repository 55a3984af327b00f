from __future__ import annotations

import pytest

from services.trainer.schedule import learning_rate


def test_warm_up_then_linear_decay_to_the_floor() -> None:
    rates = [learning_rate(step, peak=1.0, floor=0.1, warmup=4, steps=14) for step in range(16)]
    assert rates[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert rates[13:] == pytest.approx([0.1, 0.1, 0.1])
    assert rates[4:14] == sorted(rates[4:14], reverse=True)


def test_edges() -> None:
    assert learning_rate(0, peak=2.0, floor=0.5, warmup=0, steps=1) == 2.0
    with pytest.raises(ValueError, match="negative"):
        learning_rate(-1, peak=1.0, floor=0.1, warmup=1, steps=2)
