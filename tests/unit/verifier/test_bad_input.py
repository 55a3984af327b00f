"""What is handed in wrongly gets one clear line.

A refusal where there is a caller, `infra` or `invalid` where there is a record.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas.cards import Card, parse_card
from schemas.tasks import Task
from services.runtime.errors import BadInput
from services.verifier import cli, engine
from services.verifier.jail import JailUnavailable, SnapshotError, hierarchy, machine, snapshot
from services.verifier.network import AllowError, network
from services.verifier.pool import Judged, Pool

CARD = 'name="d"\nlayer="tool"\nsummary="s"\ngenerator="m:f"\n[verifier]\nfamily="{}"\n'
CODE: dict[str, Any] = {
    "entry": "f",
    "kind": "expression",
    "params": ["q"],
    "cases": [{"args": [2], "want": 5}],
}
V1 = "30 1 0:1 / /sys/fs/cgroup/{0} rw - cgroup cgroup rw,{0}\n31 1 0:2 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"


def card(family: str = "code", more: str = "") -> Card:
    return parse_card(CARD.format(family) + more, "d.toml")


def judged(spec: dict[str, Any], submission: bytes = b"q*2+1", described: Card | None = None) -> Any:
    return engine.judge(
        Task(id="t", domain="d", prompt="p", spec=spec),
        described or card(),
        submission,
        jail=None,  # type: ignore[arg-type]
    )


def one_line(text: str) -> bool:
    return bool(text) and "\n" not in text


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({}, "spec.kind"),
        (CODE | {"cases": []}, "spec.cases is empty"),
        (CODE | {"cases": "many"}, "spec.cases must be a list"),
        (CODE | {"entry": "no name"}, "not a name"),
        (CODE | {"cases": [{"args": [1]}]}, "spec.cases[0].want is missing"),
    ],
)
def test_a_malformed_task_is_ours_and_named(spec: dict[str, Any], said: str) -> None:
    verdict = judged(spec)
    assert (verdict.outcome, verdict.score) == ("infra", None)
    assert verdict.evidence.startswith("card or task at fault in d: ")
    assert said in verdict.evidence
    assert one_line(verdict.evidence)


def test_a_file_that_is_no_task_is_refused(tmp_path: Path) -> None:
    for number, text in enumerate(
        ('{"id": "t"}', "[1]", "{", '{"task": {"id": "", "domain": "d", "prompt": "p"}}')
    ):
        path = tmp_path / f"{number}.json"
        path.write_text(text)
        with pytest.raises(BadInput) as caught:
            cli.read_task(str(path))
        assert path.name in str(caught.value)
        assert one_line(str(caught.value))


def test_an_unknown_family_is_refused_with_the_card_and_is_infra_without() -> None:
    with pytest.raises(ValueError, match=r"verifier\.family") as caught:
        card("oracle")
    assert one_line(str(caught.value))
    known = card()
    unknown = msgspec.structs.replace(
        known, verifier=msgspec.structs.replace(known.verifier, family="oracle")
    )
    verdict = judged(CODE, described=unknown)
    assert verdict.outcome == "infra"
    assert "choose one of code, terminal" in verdict.evidence


@pytest.mark.parametrize(
    "line",
    [
        "wall_s=-1.0",
        "cpu_s=0.0",
        "memory_mib=-5",
        "pids=0",
        "output_kib=-1",
        "disk_mib=0",
        "wall_s=inf",
        "wall_s=nan",
    ],
)
def test_limits_that_are_none_are_refused_by_name(line: str) -> None:
    with pytest.raises(ValueError, match=line.partition("=")[0]) as caught:
        card(more=f"[limits]\n{line}\n")
    assert one_line(str(caught.value))


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"\xff\xfe\x00", "not valid UTF-8 (byte 0)"),
        (b"q*2\xc3", "byte 3"),
        (b"", "empty"),
        (b"\n \t", "empty"),
    ],
)
def test_an_answer_that_is_no_text_is_the_models_fault(raw: bytes, said: str) -> None:
    verdict = judged(CODE, raw)
    assert (verdict.outcome, verdict.score) == ("invalid", 0.0)
    assert said in verdict.evidence
    assert one_line(verdict.evidence)


def test_a_hundred_megabytes_are_invalid_and_reach_no_worker(tmp_path: Path) -> None:
    async def go() -> tuple[Judged, Judged, dict[str, float]]:
        pool = Pool({"d": card()}, tmp_path, slots=1)  # not started: there is nobody to judge
        task = Task(id="t", domain="d", prompt="p", spec=CODE)
        broken = Task(id="t", domain="d", prompt="p", spec=CODE | {"cases": []})
        return (
            await pool.judge(task, b"x" * 100_000_000),
            await pool.judge(broken, b"x" * 100_000),
            pool.stats,
        )

    long, broken, stats = asyncio.run(go())
    assert (long.verdict.outcome, long.verdict.score) == ("invalid", 0.0)
    assert long.verdict.evidence == "the answer has 100000000 bytes, 65536 are allowed"
    assert (broken.verdict.outcome, stats["jobs"]) == ("infra", 2)
    assert (
        engine.judge(
            Task(id="t", domain="d", prompt="p", spec=CODE),
            card(),
            b"x" * 100_000,
            jail=None,  # type: ignore[arg-type]
        ).evidence
        == "the answer has 100000 bytes, 65536 are allowed"
    )


def test_a_machine_without_a_controller_or_namespaces_is_refused_by_what_is_missing() -> None:
    with pytest.raises(JailUnavailable, match="'memory'") as caught:
        hierarchy.plan(V1.format("pids"), "0::/\n1:pids:/\n", frozenset())
    assert one_line(str(caught.value))
    with pytest.raises(JailUnavailable, match="'pids'"):
        hierarchy.plan(V1.format("memory"), "0::/\n1:memory:/\n", frozenset())


def test_a_machine_without_a_kind_of_namespace_is_refused_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gets as far as that")
    monkeypatch.setattr(machine, "NAMESPACES", ("mnt", "nowhere"))
    with pytest.raises(JailUnavailable, match="no nowhere namespaces: enable them") as caught:
        machine.probe()
    assert one_line(str(caught.value))


def test_a_card_that_asks_for_network_without_a_list_is_refused() -> None:
    for asked in ("allow:", "allow", True, ["a:1"], "all", "host"):
        with pytest.raises(AllowError) as caught:
            network(asked)
        assert one_line(str(caught.value))
    assert network("none") is None


def test_a_snapshot_whose_bytes_do_not_match_its_digest_is_refused(tmp_path: Path) -> None:
    name = snapshot.save(snapshot.Snapshot(()), tmp_path)
    assert snapshot.load(name, tmp_path).digest == name
    (blob,) = (path for path in tmp_path.rglob(f"*{name}*") if path.is_file())
    blob.chmod(0o600)
    blob.write_bytes(blob.read_bytes() + b"x")
    with pytest.raises(SnapshotError, match=r"do not match its name|cannot be used") as caught:
        snapshot.load(name, tmp_path)
    assert one_line(str(caught.value))


def test_without_a_jail_the_worker_says_why_and_judges_nothing(tmp_path: Path) -> None:
    # A worker whose machine cannot jail: here, because it looks for programs in a folder that has none of them.
    async def go() -> None:
        script = tmp_path / "worker.py"
        script.write_text(
            "import sys\nfrom services.verifier import worker\nfrom services.verifier.jail import JailUnavailable\n"
            "def probe():\n    raise JailUnavailable('this kernel has no user namespaces:\\nenable them')\n"
            "worker.probe = probe\nsys.exit(worker.main(sys.argv[1:]))\n"
        )
        pool = Pool({"d": card()}, tmp_path, slots=2, command=(sys.executable, str(script)))
        with pytest.raises(JailUnavailable) as caught:
            await pool.start()
        assert str(caught.value) == "this kernel has no user namespaces: enable them"
        assert pool.pids == []

    asyncio.run(go())
    assert os.environ.get("TEMPER_NO_JAIL") is None  # there is no switch to go without
