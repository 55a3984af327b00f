from __future__ import annotations

from pathlib import Path

import pytest

from services.verifier import families
from services.verifier.bench import cases, figures, peers
from services.verifier.bench.figures import Cell


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = [float(n) for n in range(1, 101)]
    assert [figures.percentile(values, share) for share in (0.5, 0.99, 1.0)] == [50.0, 99.0, 100.0]
    assert figures.percentile([7.0], 0.99) == 7.0
    with pytest.raises(ValueError, match="of nothing"):
        figures.percentile([], 0.5)


def rounds() -> list[dict[tuple[str, str], Cell]]:
    """Three rounds on a machine that gets slower and slower: ours is always twice as good as the peer."""
    made = []
    for slow in (1.0, 2.0, 8.0):
        ours = Cell(verdicts=10, wall_s=1.0 * slow, cpu_s=0.5 * slow, took=[0.1 * slow] * 10)
        made.append({("a", "ours"): ours, ("a", "peer"): Cell(10, 4.0 * slow, 1.0 * slow, [0.1] * 10)})
    return made


def test_ratios_are_taken_within_a_round() -> None:
    found = figures.throughput(rounds(), "ours", {})
    assert found["a.per_core_s"].ratio == {"peer": 2.0}
    assert found["a.per_s"].ratio == {"peer": 4.0}
    ours = found["a.per_core_s"]
    assert (ours.value, ours.min, ours.max, ours.runs) == (10.0, 2.5, 20.0, 3)
    assert (found["a.peer.per_core_s"].value, found["a.peer.per_core_s"].ratio) == (5.0, {})


def test_a_case_without_peers_of_its_own_is_held_against_those_that_do_its_work() -> None:
    made = rounds()
    for each in made:
        each["b", "ours"] = Cell(20, each["a", "ours"].wall_s, each["a", "ours"].cpu_s, [0.1])
    found = figures.throughput(made, "ours", {"b": "a"})
    assert found["b.per_core_s"].ratio == {"peer": 4.0}
    assert "b.peer.per_core_s" not in found
    assert figures.throughput(made, "ours", {})["b.per_core_s"].ratio == {}


def test_latencies_are_over_all_verdicts() -> None:
    found = figures.latency(rounds(), "ours")
    assert (found["a.p50_ms"].value, found["a.p99_ms"].value) == (200.0, 800.0)
    assert (found["a.p99_ms"].min, found["a.p99_ms"].max, found["a.p99_ms"].unit) == (100.0, 800.0, "ms")


def test_every_case_is_a_sound_task() -> None:
    for case in cases.CASES:
        families.family(case.card.verifier.family).check_spec(case.task.spec, case.card.verifier.settings)
    assert len(cases.INPUTS) == len(cases.one_by_one()) == 20
    scope: dict[str, object] = {}
    exec(cases.ANSWER, scope)  # our own text
    function = scope["f"]
    assert callable(function)
    assert all(function(numbers) == cases.expected(numbers) for numbers in cases.INPUTS)


def test_bubblewrap_is_a_peer_where_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert peers.bubblewrap() is None
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    words = peers.bubblewrap()
    assert words is not None
    assert words[:2] == (str(program), "--unshare-all")
    assert words[words.index("/usr") - 1 : words.index("/usr") + 2] == ("--ro-bind", "/usr", "/usr")
    assert "/" not in words
