from __future__ import annotations

import base64
import dataclasses
import math
from typing import Any

import pytest
import trimesh

from services.verifier.families import geometry
from services.verifier.jail import Change, Diff, FileEntry, Outcome
from services.verifier.jail.snapshot import Layer, Snapshot
from services.verifier.jail.tree import Entry, from_files
from services.verifier.specs import SpecError

SPEC: dict[str, Any] = {"kind": "mesh", "want": "box(2,3,4)"}


def wrote(files: dict[str, bytes], **more: Any) -> Outcome:
    """What a script leaves that wrote these files."""
    layer: dict[bytes, Entry] = from_files({path: FileEntry(data) for path, data in files.items()})
    snapshot = Snapshot((Layer(layer),))
    created = tuple(
        Change(change.path, change.type, change.mode, change.size, change.digest)
        for change in snapshot.listing().values()
    )
    facts: dict[str, Any] = {"cause": "exit", "exit_code": 0, "diff": Diff(created), "snapshot": snapshot}
    return Outcome(**facts | more)


def stl(*size: float) -> bytes:
    return bytes(trimesh.creation.box(size).export(file_type="stl"))


@pytest.fixture
def judge(make_task: Any, limits: Any, scripted: Any) -> Any:
    def run(*outcomes: Outcome, spec: dict[str, Any] = SPEC, text: str = "script", **settings: Any) -> Any:
        geometry.check_spec(spec, settings)
        return geometry.verify(make_task(spec), settings, limits, text.encode(), scripted(*outcomes))

    return run


def test_the_wanted_mesh_passes(judge: Any) -> None:
    verdict = judge(wrote({"out.stl": stl(2, 3, 4), "notes.txt": b""}))
    assert (verdict.score, verdict.passed) == (1.0, True)
    assert [part.name for part in verdict.parts] == [
        "valid",
        "iou",
        "chamfer",
        "box",
        "topology",
        "silhouette",
    ]


def test_a_mesh_nearby_scores_in_between(judge: Any) -> None:
    verdict = judge(wrote({"out.stl": stl(2, 3, 3)}))
    assert 0.5 < verdict.score < 1.0
    assert not verdict.passed
    assert {part.name: part.score for part in verdict.parts}["iou"] == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (wrote({}), "it left none"),
        (wrote({"out.stl": stl(2, 3, 4), "out.obj": b""}), "it left 2 of them"),
        (wrote({"out.stl": b""}), "empty"),
        (wrote({"out.stl": bytes(80) + (10**8).to_bytes(4, "little")}), "announces"),
        (wrote({"out.stl": stl(2, 3, 4)}, exit_code=1), "the script failed: exit 1"),
        (wrote({"out.stl": stl(2, 3, 4)}, cause="signal", exit_code=None, signal=9), "signal 9"),
        (wrote({"out.stl": stl(2, 3, 4)}, cause="wall", exit_code=None), "the script failed: wall"),
        (wrote({"out.stl": stl(2, 3, 4)}, snapshot=None), "too much to be kept"),
    ],
)
def test_what_cannot_be_measured_scores_0_with_the_reason(judge: Any, outcome: Outcome, said: str) -> None:
    verdict = judge(outcome)
    assert (verdict.outcome, verdict.score, verdict.passed) == ("scored", 0.0, False)
    assert said in verdict.parts[0].evidence


@pytest.mark.parametrize("kind", ["symlink", "fifo", "dir", "socket", "device"])
def test_only_a_regular_file_is_a_result(judge: Any, kind: str) -> None:
    made = wrote({})
    odd = dataclasses.replace(made, diff=Diff((Change("out.stl", kind, 0o777, 4, ""),)))
    verdict = judge(odd)
    assert verdict.score == 0.0
    assert verdict.parts[0].evidence == f"out.stl is a {kind}, not a regular file"


def test_an_answer_may_be_the_mesh_itself(judge: Any) -> None:
    mesh = trimesh.creation.box((2, 3, 4))
    for kind in ("obj", "off", "stl_ascii"):
        assert judge(text=mesh.export(file_type=kind), answer="mesh").score == 1.0
    assert judge(text="v 0 0 0\nf 1 1 1\n", answer="mesh").score == 0.0
    assert judge(text=mesh.export(file_type="obj"), answer="mesh", format="off").score == 0.0


def test_weights_and_the_bar_are_the_cards(judge: Any) -> None:
    only = judge(wrote({"out.stl": stl(2, 3, 3)}), weights={"box": 1.0})
    assert only.score == pytest.approx(0.75)
    assert judge(wrote({"out.stl": stl(2, 3, 3)}), passed=0.7).passed


def test_a_reference_may_be_a_mesh(judge: Any) -> None:
    want = {"format": "stl", "base64": base64.b64encode(stl(2, 3, 4)).decode()}
    assert judge(wrote({"out.stl": stl(2, 3, 4)}), spec={"kind": "mesh", "mesh": want}).passed
    moved = trimesh.creation.box((2, 3, 4))
    moved.apply_translation((9, 9, 9))
    data = bytes(moved.export(file_type="stl"))
    spec = {"kind": "mesh", "mesh": want, "align": "translate"}
    assert judge(wrote({"out.stl": data}), spec=spec).passed
    assert judge(wrote({"out.stl": data}), spec=spec | {"align": "none"}).score == 0.0


def test_a_jail_fault_is_no_score(judge: Any) -> None:
    assert judge(Outcome(cause="infra", detail="gone")).outcome == "infra"


@pytest.mark.parametrize(
    ("spec", "settings", "said"),
    [
        ({"kind": "magic"}, {}, "spec.kind"),
        ({"kind": "mesh"}, {}, "exactly one of want"),
        ({"kind": "mesh", "want": "box(1,1,1)", "mesh": {}}, {}, "exactly one of want"),
        ({"kind": "mesh", "want": "box("}, {}, "spec.want"),
        ({"kind": "mesh", "mesh": {"format": "stl", "base64": "!"}}, {}, "spec.mesh.base64"),
        ({"kind": "mesh", "mesh": {"format": "obj", "text": "v 0 0 0"}}, {}, "spec.mesh"),
        ({"kind": "mesh", "mesh": {"format": "step", "text": "x"}}, {}, "spec.mesh.format"),
        (SPEC | {"align": "guess"}, {}, "spec.align"),
        (SPEC, {"weights": {"iou": 0.0}}, "all 0"),
        (SPEC, {"weights": {"looks": 1.0}}, "looks"),
        (SPEC, {"weights": {"iou": math.nan}}, "weights.iou"),
        (SPEC, {"tau": 0}, "tau"),
        (SPEC, {"triangles": 10**9}, "triangles"),
        (SPEC, {"answer": "pickle"}, "answer"),
        ({"want": "box(1,1,1)", "align": "translate"}, {}, "spec.align"),
        ({"want": "box(1,1,1)"}, {"tau": 1}, "tau"),
    ],
)
def test_a_broken_spec_is_named(spec: dict[str, Any], settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        geometry.check_spec(spec, settings)
    assert said in str(caught.value)
