from __future__ import annotations

import pytest

from schemas.cards import parse_card
from services.verifier import sizing


@pytest.mark.parametrize(
    ("cores", "available", "slot", "wanted"),
    [(2, 24_000, 300, 2), (64, 24_000, 300, 64), (64, 3000, 300, 8), (8, 100, 300, 1), (1, 0, 300, 1)],
)
def test_slots_follow_cores_and_memory(cores: int, available: float, slot: float, wanted: int) -> None:
    assert sizing.fitting(cores, available, slot) == wanted


def test_the_largest_card_decides_unless_a_number_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'name="{}"\nlayer="tool"\nsummary="s"\ngenerator="m:f"\n[verifier]\nfamily="code"\n[limits]\nmemory_mib={}\n'
    cards = [parse_card(text.format(name, mib), name) for name, mib in (("a", 100), ("b", 4000))]
    monkeypatch.setattr(sizing, "available_mib", lambda: 10_500.0)
    monkeypatch.setattr(sizing, "cores", lambda: 16)
    assert sizing.slots(0, cards) == 2
    assert sizing.slots(0, cards[:1]) == 16
    assert sizing.slots(5, cards) == 5


def test_this_machine_has_some() -> None:
    assert sizing.cores() >= 1
    assert sizing.available_mib() > 10
