"""Fixed-length rows of several samples. Invariant: a sample has positions from 0 and its own segment."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import msgspec
import numpy as np
import numpy.typing as npt

PAD_SEGMENT = -1
REFUSALS = 4
"""Samples that fit no row, after which a batch counts as full."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Arrays of shape [rows, tokens]; `targets` marks the tokens to predict: answers and end marks."""

    ids: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]
    segments: npt.NDArray[np.int64]
    targets: npt.NDArray[np.bool_]


def batches(
    pairs: Iterator[tuple[str, str]], *, rows: int, tokens: int, end: int, pad: int
) -> Iterator[Batch]:
    """Endless batches of byte ids, filled first-fit; a sample that fits no row waits for the next batch.

    Raises:
        ValueError: a sample longer than a row.
    """
    waiting: deque[tuple[bytes, bytes]] = deque()
    while True:
        ids = np.full((rows, tokens), pad, dtype=np.int64)
        positions = np.zeros((rows, tokens), dtype=np.int64)
        segments = np.full((rows, tokens), PAD_SEGMENT, dtype=np.int64)
        targets = np.zeros((rows, tokens), dtype=np.bool_)
        used = [0] * rows
        refused: list[tuple[bytes, bytes]] = []
        number = 0
        while len(refused) < REFUSALS:
            if waiting:
                prompt, answer = waiting.popleft()
            else:
                text, reply = next(pairs)
                prompt, answer = text.encode(), reply.encode()
            size = len(prompt) + len(answer) + 1
            if size > tokens:
                raise ValueError(f"sample of {size} tokens is longer than a row of {tokens}: {prompt!r}")
            row = next((index for index, count in enumerate(used) if count + size <= tokens), None)
            if row is None:
                refused.append((prompt, answer))
                continue
            start = used[row]
            used[row] = start + size
            ids[row, start : start + size] = [*prompt, *answer, end]
            positions[row, start : start + size] = np.arange(size)
            segments[row, start : start + size] = number
            targets[row, start + len(prompt) : start + size] = True
            number += 1
        waiting.extend(refused)
        yield Batch(ids=ids, positions=positions, segments=segments, targets=targets)
