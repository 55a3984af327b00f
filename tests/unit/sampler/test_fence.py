from __future__ import annotations

from services.runtime.fence import EpochFence


def test_an_older_incarnation_has_no_effect_in_the_same_partition() -> None:
    fence = EpochFence()
    assert fence.passes(0, 0, 3)
    assert fence.passes(0, 0, 4)
    assert not fence.passes(0, 0, 3)
    assert fence.passes(1, 0, 3), "another partition may merely be read later"
    assert fence.passes(0, 1, 1), "another shard has epochs of its own"
    assert fence.dropped == 1
