"""Learning rate by step. Invariant: a pure function of the step, so that a resumed run continues on the same curve."""

from __future__ import annotations


def learning_rate(step: int, *, peak: float, floor: float, warmup: int, steps: int) -> float:
    """Learning rate of optimiser step `step` (from 0): linear warm-up to `peak`, then linear decay to `floor * peak`.

    Args:
        step: number of steps done before this one.
        peak: highest rate.
        floor: share of `peak` at the last step and after it.
        warmup: steps of the warm-up; step `warmup - 1` has the peak.
        steps: planned steps of the run.

    Raises:
        ValueError: a negative step.
    """
    if step < 0:
        raise ValueError(f"step {step} is negative")
    if step < warmup:
        return peak * (step + 1) / warmup
    span = steps - 1 - warmup
    if span <= 0:
        return peak
    done = min(1.0, (step - warmup) / span)
    return peak * (1.0 - done * (1.0 - floor))
