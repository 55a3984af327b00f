"""Powers of two. Invariant: the same bits on every machine, which the C library's `exp2` does not promise.

Replay compares state byte for byte, perhaps on another machine than the one that wrote it.
"""

from __future__ import annotations

import math

_LN2 = 0.6931471805599453
_TERMS = 14
_SMALLEST = -1000.0


def _series() -> tuple[float, ...]:
    terms = [1.0]
    for n in range(1, _TERMS):
        terms.append(terms[-1] * _LN2 / n)
    return tuple(reversed(terms))


_COEFFICIENTS = _series()
"""Taylor series of 2 ** x around 0: below 1e-13 off for x in [0, 1); highest first."""


def exp2(x: float) -> float:
    """`2 ** x` by additions and multiplications only, which IEEE 754 fixes to the last bit; 0 below 2 ** -1000."""
    if x < _SMALLEST:
        return 0.0
    whole = math.floor(x)
    x -= whole
    c = _COEFFICIENTS  # two terms a line, written out: this is on the way of every decision
    power = (c[0] * x + c[1]) * x + c[2]
    power = (power * x + c[3]) * x + c[4]
    power = (power * x + c[5]) * x + c[6]
    power = (power * x + c[7]) * x + c[8]
    power = (power * x + c[9]) * x + c[10]
    power = (power * x + c[11]) * x + c[12]
    power = power * x + c[13]
    return math.ldexp(power, whole)
