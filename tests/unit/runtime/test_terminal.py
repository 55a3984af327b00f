"""`temper ps | head` and the like."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from services.runtime.terminal import ENDED

ROOT = Path(__file__).resolve().parents[3]
LONG = "import sys\nfrom services.runtime.terminal import command\n"
PROGRAMS = {
    "prints much": LONG + "sys.exit(command(lambda: print('x' * 1_000_000) or 0))",
    "prints little": LONG + "sys.exit(command(lambda: print('x') or 0))",
    "exits itself": LONG + "def run():\n    print('x')\n    sys.exit(2)\nsys.exit(command(run))",
}


def run(program: str) -> tuple[int, str]:
    """Its exit status and what it complained of, with nobody to read what it prints."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writer)
    return done.returncode, done.stderr


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_reader_that_goes_away_ends_a_command_without_a_word(name: str) -> None:
    assert run(PROGRAMS[name]) == (ENDED, "")


def test_another_broken_pipe_is_a_fault() -> None:
    program = LONG + "def run():\n    raise BrokenPipeError('of a helper')\nsys.exit(command(run))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "of a helper" in done.stderr


@pytest.mark.parametrize("words", [["--help"], ["domains", "ls"]])
def test_temper_itself(words: list[str]) -> None:
    program = f"import sys\nfrom services.console.__main__ import main\nsys.exit(main({words!r}))"
    status, said = run(program)
    assert (status in (0, ENDED), said) == (True, ""), "argparse itself passes over a reader that is gone"
