"""The chaos suite's short form: every scenario once, on a real broker, Redis and scheduler, audited from the log.

`make chaos` is the long form: more tasks, longer waits, 20 seeds, a report.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from services.runtime.stack import Stack
from tests.chaos.suite.run import Scenario, once
from tests.chaos.suite.scenarios import SCENARIOS

SHORT = [scenario for scenario in SCENARIOS if scenario.short]
SEED = int(os.environ.get("TEMPER_CHAOS_SEED", "1"))
pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize("scenario", SHORT, ids=[scenario.name for scenario in SHORT])
def test_every_invariant_holds(scenario: Scenario, stack: Stack, tmp_path: Path) -> None:
    outcome = asyncio.run(once(scenario, SEED, tmp_path, (stack.kafka, stack.redis)))
    assert outcome.error == ""
    assert outcome.findings == []
    # A run in which nothing happened proves nothing.
    assert outcome.figures["terminal"] >= 30
    assert outcome.figures["groups"] >= 30
    assert outcome.figures["entries"] >= 30
