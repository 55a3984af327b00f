"""Without the right to make namespaces and mounts there is no verdict and no fallback: one line, status 3."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[3]
COMMANDS = (
    ("sandbox", "run", "--", "true"),
    ("validate", "code.lists", "--paths", "domains"),
)


@pytest.mark.integration
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_without_capabilities_it_refuses_with_one_line(command: tuple[str, ...]) -> None:
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("setpriv is not installed")
    done = subprocess.run(
        [
            setpriv,
            "--bounding-set",
            "-all",
            "--inh-caps",
            "-all",
            sys.executable,
            "-m",
            "services.verifier",
            *command,
        ],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 3
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert "CAP_SYS_ADMIN" in done.stderr
