from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import pytest

from services.runtime.catalog import Catalog
from services.runtime.measures import figure, percentile, ratio, short
from services.scheduler.bench import main, pipeline, systems
from services.scheduler.bench.board import Board
from services.scheduler.bench.names import DOMAINS, OURS, domain_of, number_of, task_id
from services.scheduler.bench.pipeline import Cell
from services.scheduler.bench.submitter import outgoing
from services.scheduler.policies import policies_of

if TYPE_CHECKING:
    from pathlib import Path


def test_a_ratio_is_taken_within_each_round() -> None:
    ours = [10.0, 30.0, 20.0]
    found = figure(ours, "x", {"peer": ratio(ours, [1.0, 10.0, 4.0])})
    assert (found.value, found.min, found.max, found.runs) == (20.0, 10.0, 30.0, 3)
    assert found.ratio == {"peer": 5.0}
    assert short(12345.678) == 12350.0
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0


def test_figures_have_ours_the_peers_and_ratios() -> None:
    rounds = [
        {
            OURS: Cell(per_s=100.0 * n, submit_per_s=50.0, cpu_us={"scheduler": 10.0}, idle_s=[0.01]),
            "celery": Cell(
                per_s=20.0 * n, submit_per_s=5.0, cpu_us={"worker": 4.0, "redis": 3.0}, idle_s=[0.02]
            ),
        }
        for n in (1, 2, 3)
    ]
    found = pipeline.figures(rounds)
    assert found["pipeline.per_s"].value == 200.0
    assert found["pipeline.per_s"].ratio == {"celery": 5.0}
    assert found["pipeline.celery.per_s"].value == 40.0
    assert found["idle.p50_ms"].ratio == {"celery": 0.5}
    assert found["cpu.scheduler.us"].value == 10.0
    assert found["cpu.celery.us"].value == 7.0


def test_the_board_keeps_the_first_time_a_task_was_begun(tmp_path: Path) -> None:
    board = Board.create(tmp_path / "board", 4)
    other = Board(tmp_path / "board")
    board.submit(2)
    other.begin(2)
    first = board.begun(2, 1)
    other.begin(2)
    assert board.begun(2, 1) == first > board.submitted(2, 1) > [0.0]
    assert board.begun(0, 4) == [0.0, 0.0, *first, 0.0]
    board.close()
    assert not (tmp_path / "board").exists()


def test_consecutive_tasks_are_of_all_domains_in_turn(tmp_path: Path) -> None:
    assert {domain_of(number) for number in range(DOMAINS)} == {
        domain_of(n) for n in range(500, 500 + DOMAINS)
    }
    assert len({domain_of(number) for number in range(DOMAINS)}) == DOMAINS
    assert number_of(task_id(77)) == 77
    systems.write_cards(tmp_path / "cards")
    config = systems.configuration(tmp_path / "cards", 1000)
    policies = policies_of(Catalog.load(config.domains.paths).cards, config)
    event: Any = outgoing(5).event
    assert event.task.domain in policies.domains
    assert policies.ready_cap > 1000
    assert policies.groups_per_step > 1000


def test_absent_peers_are_named_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "arq" else real(name))
    assert main.main(["pipeline"]) == main.FAILED
    said = capsys.readouterr().err
    assert said == (
        "temper bench pipeline: arq to compare with is not installed: "
        "`uv pip install -r requirements/bench.txt`, or give --no-peers\n"
    )


def test_a_system_whose_process_ends_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPER_BENCH_REDIS", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("TEMPER_BENCH_EACH", "1")
    board = Board.create(tmp_path / "board", 1)
    environment = {"TEMPER_BENCH_REDIS": "redis://127.0.0.1:1/0", "TEMPER_BENCH_EACH": "1"}
    with (
        systems.System("dramatiq", board, tmp_path, environment, {"worker": ["this_is_no_module"]}) as system,
        pytest.raises(systems.BenchError, match=r"worker ended: .*this_is_no_module"),
    ):
        system.await_(lambda: False, "nothing", 30.0)
    board.close()
