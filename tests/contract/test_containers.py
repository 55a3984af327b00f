"""The containers' description is valid, complete, and agrees with the project."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parents[2]
SERVICES = {"scheduler", "sampler", "verifier", "trainer", "evaluator"}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    tool = shutil.which("docker-compose", path=str(Path(sys.executable).parent))
    assert tool is not None, "docker-compose comes with requirements/dev.txt: run `make setup`"
    command = [
        tool,
        "-f",
        str(PROJECT / "docker-compose.yml"),
        "--profile",
        "observability",
        "config",
        "--format",
        "json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_all_services_are_there_with_health_and_a_bound_on_memory(compose: dict[str, Any]) -> None:
    assert set(compose["services"]) == SERVICES | {"kafka", "redis", "topics", "collector"}
    for name in SERVICES:
        service = compose["services"][name]
        assert service["healthcheck"]["test"]
        assert int(service["mem_limit"]) > 0
        assert service["depends_on"]["topics"]["condition"] == "service_completed_successfully"


def test_every_image_has_its_file_and_every_file_its_locked_packages(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        if "build" not in service:
            continue
        path = PROJECT / service["build"]["dockerfile"]
        text = path.read_text()
        group = path.name.removesuffix(".Dockerfile")
        assert f"requirements/{group}.txt" in text, name
        assert (PROJECT / "requirements" / f"{group}.txt").exists()
        assert "--require-hashes" in text
    assert {
        path.name.removesuffix(".Dockerfile") for path in (PROJECT / "deploy" / "images").iterdir()
    } == SERVICES | {"console"}


def test_only_the_verifier_gets_a_capability_and_nobody_is_privileged(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert not service.get("privileged")
        assert bool(service.get("cap_add")) == (name == "verifier")
