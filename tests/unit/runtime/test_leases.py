from __future__ import annotations

from services.runtime.leases import LeaseTable


def test_lease_lives_until_it_expires_or_is_released() -> None:
    table = LeaseTable()
    assert table.take("b", 10.0)
    assert table.take("a", 20.0)
    assert not table.take("a", 99.0)
    assert table.live(9.9) == ["a", "b"]
    assert table.live(10.0) == ["a"]
    assert table.next_expiry() == 10.0
    assert table.expire(10.0) == ["b"]
    assert table.release("a")
    assert not table.release("a")
    assert (len(table), table.next_expiry(), table.expire(1e9)) == (0, None, [])


def test_renewal_never_shortens_and_names_strangers() -> None:
    table = LeaseTable()
    table.take("a", 10.0)
    assert table.renew(["a", "x"], 30.0) == ["x"]
    assert table.renew(["a"], 20.0) == []
    assert table.expires_at("a") == 30.0
    assert table.expire(29.0) == []
    assert table.expire(30.0) == ["a"]


def test_memory_stays_bounded_under_renewals() -> None:
    table = LeaseTable()
    table.take("a", 0.0)
    for second in range(1, 10_000):
        table.renew(["a"], float(second))
    assert len(table._heap) < 100
    assert table.next_expiry() == 9999.0
