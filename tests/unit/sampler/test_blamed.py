from __future__ import annotations

import pytest

from services.sampler.handlers import blamed


@pytest.mark.parametrize(
    ("detail", "running", "how"),
    [
        ("the engine failed: OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", 1, "killed"),
        ("the engine failed: MemoryError: ", 1, "killed"),
        ("the engine failed: OSError: [Errno 12] Cannot allocate memory", 1, "killed"),
        ("the engine failed: OutOfMemoryError: CUDA out of memory", 2, "abandoned"),
        ("the engine failed: ValueError: bad shape", 1, "abandoned"),
        ("", 1, "abandoned"),
    ],
)
def test_only_a_group_alone_is_blamed_for_a_lack_of_memory(detail: str, running: int, how: str) -> None:
    assert blamed(detail, running) == how
