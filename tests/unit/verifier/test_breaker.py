from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.verifier.breaker import Breaker

PROBE_S = 60.0


def breaker(threshold: int = 3) -> Breaker:
    return Breaker(threshold, pause_s=10.0, pause_max_s=30.0)


def opened(domain: str = "d") -> Breaker:
    made = breaker()
    assert [made.note(domain, f"f{n}", 0.0) for n in range(3)] == ["", "", "opened"]
    return made


def test_faults_in_a_row_open_it_and_the_refusal_names_the_last() -> None:
    made = opened()
    said = made.refusal("d", 4.0, PROBE_S)
    assert (
        said == "domain d is not judged after 3 faults in a row and will be tried again in 6 s; the last: f2"
    )
    assert made.open_count == 1


def test_a_good_verdict_between_starts_the_count_again() -> None:
    made = breaker()
    for fault in ("a", "b", "", "c", "d"):
        assert made.note("d", fault, 0.0) == ""
    assert made.refusal("d", 0.0, PROBE_S) == ""


def test_other_domains_are_not_touched() -> None:
    made = opened()
    assert made.refusal("e", 1.0, PROBE_S) == ""
    assert made.note("e", "once", 1.0) == ""
    assert made.note("e", "", 1.0) == ""
    assert made.refusal("d", 1.0, PROBE_S)


def test_after_the_pause_one_probe_decides() -> None:
    made = opened()
    assert made.refusal("d", 10.0, PROBE_S) == ""
    assert "is being tried again" in made.refusal("d", 10.1, PROBE_S)
    assert made.note("d", "", 11.0) == "closed"
    assert made.refusal("d", 11.0, PROBE_S) == ""
    assert made.open_count == 0


def test_a_bad_probe_doubles_the_pause_up_to_its_bound() -> None:
    made = opened()
    now = 10.0
    for pause in (20.0, 30.0, 30.0):
        assert made.refusal("d", now, PROBE_S) == ""
        assert made.note("d", "still", now) == "opened"
        assert made.refusal("d", now + pause - 0.1, PROBE_S)
        now += pause
    assert made.refusal("d", now, PROBE_S) == ""


def test_a_probe_that_says_nothing_is_not_waited_for_for_ever() -> None:
    made = opened()
    assert made.refusal("d", 10.0, PROBE_S) == ""
    assert made.refusal("d", 69.9, PROBE_S)
    assert made.refusal("d", 70.0, PROBE_S) == ""


def test_what_was_running_when_it_opened_neither_prolongs_nor_hides() -> None:
    made = opened()
    assert made.note("d", "late", 5.0) == ""
    assert made.refusal("d", 10.0, PROBE_S) == ""
    other = opened()
    assert other.note("d", "", 5.0) == "closed"


def test_a_threshold_of_nought_never_opens() -> None:
    made = breaker(0)
    assert {made.note("d", "x", float(n)) for n in range(100)} == {""}
    assert made.refusal("d", 100.0, PROBE_S) == ""


@given(st.lists(st.tuples(st.sampled_from("ab"), st.booleans(), st.floats(0.0, 50.0)), max_size=60))
def test_no_domain_is_shut_for_longer_than_the_longest_pause_and_probe(
    steps: list[tuple[str, bool, float]],
) -> None:
    made, now = breaker(2), 0.0
    for domain, good, pause in steps:
        now += pause
        if not made.refusal(domain, now, PROBE_S):
            made.note(domain, "" if good else "fault", now)
    for domain in "ab":
        assert any(not made.shut(domain, now + ahead) for ahead in (0.0, 30.0, 61.0))
