"""One-to-one matching of two lists. Invariant: the pairing maximises the sum; for `best` no order of the lists matters."""

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


def in_order(scores: Sequence[Sequence[float]]) -> list[tuple[int, int]]:
    """As `best`, but the pairs rise in both row and column: neither list is rearranged, only thinned out."""
    if not scores or not scores[0]:
        return []
    rows, columns = len(scores), len(scores[0])
    # sums[i][j]: the best over the rows from i and the columns from j.
    sums = [[0.0] * (columns + 1) for _ in range(rows + 1)]
    for row in range(rows - 1, -1, -1):
        for column in range(columns - 1, -1, -1):
            taken = scores[row][column] + sums[row + 1][column + 1]
            sums[row][column] = max(taken, sums[row + 1][column], sums[row][column + 1])
    pairs: list[tuple[int, int]] = []
    row = column = 0
    while row < rows and column < columns:
        if sums[row][column] == scores[row][column] + sums[row + 1][column + 1]:
            pairs.append((row, column))
            row, column = row + 1, column + 1
        elif sums[row][column] == sums[row + 1][column]:
            row += 1
        else:
            column += 1
    return pairs
