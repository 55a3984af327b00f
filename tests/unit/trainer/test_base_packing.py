"""Packed rows: every sample whole, once, apart from its neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice

import numpy as np
import pytest

from services.trainer.base.packing import PAD_SEGMENT, Batch, batches


def pairs() -> Iterator[tuple[str, str]]:
    for number in count():
        yield f"p{number}>", "a" * (1 + number * 7 % 20)


def unpack(batch: Batch) -> list[tuple[str, str]]:
    found = []
    for number in range(batch.segments.max() + 1):
        (row,) = set(np.argwhere(batch.segments == number)[:, 0])
        inside = batch.segments[row] == number
        ids, targets = batch.ids[row, inside], batch.targets[row, inside]
        assert batch.positions[row, inside].tolist() == list(range(len(ids)))
        assert ids[-1] == 256
        assert targets[-1]
        found.append((bytes(ids[~targets].tolist()).decode(), bytes(ids[targets][:-1].tolist()).decode()))
    return found


def test_each_sample_comes_whole_and_once() -> None:
    made = list(islice(batches(pairs(), rows=4, tokens=40, end=256, pad=257), 30))
    got = [pair for batch in made for pair in unpack(batch)]
    assert len(got) == len(set(got))
    wanted = list(islice(pairs(), len(got) + 8))
    assert set(got) <= set(wanted)
    # Only the last batch's refusals are missing: nothing waits for ever.
    assert set(wanted[: len(got) - 8]) <= set(got)


def test_rows_are_nearly_full_and_the_rest_is_padding() -> None:
    made = list(islice(batches(pairs(), rows=8, tokens=128, end=256, pad=257), 10))
    for batch in made:
        assert (batch.segments != PAD_SEGMENT).mean() > 0.9
        assert (batch.ids[batch.segments == PAD_SEGMENT] == 257).all()
        assert not batch.targets[batch.segments == PAD_SEGMENT].any()


def test_a_sample_longer_than_a_row_is_an_error() -> None:
    with pytest.raises(ValueError, match="longer than a row"):
        next(batches(iter([("prompt>", "x" * 40)]), rows=1, tokens=20, end=256, pad=257))
