"""`temper verify --repeat`: the same verdict each time, for every family, and status 1 when it is not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas.run import Verifier
from services.runtime.catalog import Catalog

pytestmark = pytest.mark.integration
PROJECT = Path(__file__).resolve().parents[3]
DOMAINS = str(PROJECT / "domains")
ONE_EACH = {
    "code": "code.functions",
    "terminal": "terminal.replace",
    "document": "document.invoices",
    "geometry": "geometry.cut",
    "call": "call.json",
    "format": "format.bullets",
    "stages": "stages.files",
}


@pytest.fixture
def repeat(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(task: Any, answer: str, *words: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "task.json").write_bytes(msgspec.json.encode(task))
        (tmp_path / "answer").write_text(answer)
        command = (sys.executable, "-m", "services.verifier", "verify", "--json", "--repeat", "4")
        files = ("--task", str(tmp_path / "task.json"), "--answer", str(tmp_path / "answer"))
        return subprocess.run(
            [*command, *files, *words], cwd=PROJECT, capture_output=True, text=True, timeout=120, check=False
        )

    return run


@pytest.mark.parametrize("family", ONE_EACH)
def test_every_family_repeats(family: str, repeat: Any) -> None:
    catalog = Catalog.load((DOMAINS,), (ONE_EACH[family],), ())
    assert catalog.card(ONE_EACH[family]).verifier.family == family
    drawn = catalog.sample(ONE_EACH[family], split="heldout", seed=3, count=1)[0]
    for answer in (drawn.gold, *drawn.slips[:1]):
        done = repeat(drawn.task, answer, "--paths", DOMAINS)
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        assert document["outcome"] in ({"scored"} if answer == drawn.gold else {"scored", "invalid"})
        assert document["disagreements"] == 0
        assert [each["digest"] for each in document["verdicts"]] == [document["digest"]] * 4


def test_an_answer_that_differs_each_time_is_found_out(tmp_path: Path, repeat: Any) -> None:
    (tmp_path / "cards").mkdir()
    (tmp_path / "cards" / "d.toml").write_text(
        'name="d"\nlayer="tool"\nsummary="s"\ngenerator="m.py:f"\n[verifier]\nfamily="code"\n'
    )
    spec = {
        "entry": "f",
        "kind": "expression",
        "params": ["q"],
        "cases": [{"args": [n], "want": 1} for n in range(64)],
    }
    task = {"id": "t", "domain": "d", "prompt": "p", "spec": spec}
    done = repeat(task, "__import__('os').urandom(1)[0] % 2", "--paths", str(tmp_path / "cards"))
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["disagreements"] >= 1


def test_one_in_a_hundred_is_verified_again_unless_told_otherwise() -> None:
    assert Verifier().reverify == 0.01
