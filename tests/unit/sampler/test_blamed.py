from __future__ import annotations

import pytest

from services.sampler.handlers import blamed


@pytest.mark.parametrize(
    ("detail", "how"),
    [
        ("the engine failed: OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "killed"),
        ("the engine failed: MemoryError: ", "killed"),
        ("the engine failed: OSError: [Errno 12] Cannot allocate memory", "killed"),
        ("the engine failed: ValueError: bad shape", "abandoned"),
        ("", "abandoned"),
    ],
)
def test_a_lack_of_memory_is_told_from_other_failures(detail: str, how: str) -> None:
    assert blamed(detail) == how
