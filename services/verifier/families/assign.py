"""Best one-to-one matching of two lists. Invariant: the assignment maximises the sum, so no order of the lists matters."""

from __future__ import annotations

from collections.abc import Sequence


def best(scores: Sequence[Sequence[float]]) -> list[tuple[int, int]]:
    """Pairs (row, column) of the assignment with the largest sum of `scores`, sorted by row; [] for an empty matrix."""
    if not scores or not scores[0]:
        return []
    if len(scores) == 1 or len(scores[0]) == 1:
        # One row or one column needs no solver, and most answers are one call.
        cells = [
            (-value, row, column) for row, line in enumerate(scores) for column, value in enumerate(line)
        ]
        _, row, column = min(cells)
        return [(row, column)]
    from scipy.optimize import linear_sum_assignment  # heavy: only where there is a choice

    rows, columns = linear_sum_assignment(scores, maximize=True)
    return sorted((int(row), int(column)) for row, column in zip(rows, columns, strict=True))
