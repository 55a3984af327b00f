"""A recorded log folds to the recorded state, bit for bit; whoever changes that has to raise FOLD_VERSION and say so."""

from __future__ import annotations

import gzip
import importlib.util
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.scheduler.invariants import invariant
from services.scheduler.snapshot import FOLD_VERSION, restore, snapshot, state_digest

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def recorder() -> Any:
    spec = importlib.util.spec_from_file_location("record_scheduler", HERE / "record_scheduler.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def recording(recorder: Any) -> Any:
    raw = gzip.decompress((HERE / "data" / "scheduler.msgpack.gz").read_bytes())
    return msgspec.msgpack.decode(raw, type=recorder.Recording)


def test_the_recorded_log_gives_the_recorded_state_and_effects(recorder: Any, recording: Any) -> None:
    assert recording.fold == FOLD_VERSION, "record the log anew: python -m tests.replay.record_scheduler"
    assert recording.policies == recorder.TABLE.digest()
    state, effects = recorder.fold_all([recorder.recall(batch) for batch in recording.batches])
    assert state_digest(state) == recording.state
    assert effects == recording.effects
    assert invariant(state) == []


def test_the_recorded_log_reaches_every_kind_of_end(recorder: Any, recording: Any) -> None:
    state, _ = recorder.fold_all([recorder.recall(batch) for batch in recording.batches])
    kinds = {"succeeded", "failed", "degraded", "dead", "cancelled", "rejected"}
    assert set(state.meta.ended) == kinds
    assert {"duplicate_verdict", "duplicate_task", "verdict_of_ended_task"} <= set(state.meta.counters)


def test_a_restart_at_any_batch_changes_nothing(recorder: Any, recording: Any) -> None:
    batches = [recorder.recall(batch) for batch in recording.batches]
    for cut in range(0, len(batches), 16):
        state, _ = recorder.fold_all(batches[:cut])
        state = restore(snapshot(state)) if cut else state
        for batch in batches[cut:]:
            recorder.step(state, recorder.TABLE, batch)
        assert state_digest(state) == recording.state
