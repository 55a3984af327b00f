"""A real slot for the families; a session's slots are enough, since a job leaves nothing behind."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas.cards import parse_card
from schemas.tasks import Task
from schemas.verdicts import Verdict
from services.verifier import engine
from services.verifier.jail import JailUnavailable, Slot, probe
from tests.slots import number


@pytest.fixture(scope="session")
def family_slot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slot]:
    try:
        host = probe()
    except JailUnavailable as error:
        # A machine that is to prove the jail must not pass without one.
        say = pytest.fail if os.environ.get("CI") else pytest.skip
        say(f"no jail on this machine: {error}")
    with Slot(
        f"temper-family-{os.getpid()}-{number()}", Path(tmp_path_factory.mktemp("slots")), host
    ) as made:
        yield made


@pytest.fixture
def judge(family_slot: Slot) -> Callable[..., Verdict]:
    """`judge(family, spec, answer, limits table as TOML)` as the service would."""

    def run(
        family: str, spec: dict[str, Any], answer: str | bytes, limits: str = "wall_s=4.0\ncpu_s=2.0"
    ) -> Verdict:
        text = f'name="d"\nlayer="tool"\nsummary="s"\ngenerator="m:f"\n[verifier]\nfamily="{family}"\n[limits]\n{limits}\n'
        card = parse_card(text, "card")
        task = Task(id="t", domain="d", prompt="p", spec=spec)
        raw = answer.encode() if isinstance(answer, str) else answer
        return engine.judge(task, card, raw, family_slot)

    return run
