"""Tasks whose answer is a mesh. Invariant: a mesh that cannot be measured scores 0 with the reason; it is never our fault.

The card's setting `answer` says what is submitted: `script` (default), a Python program that is run in the jail (standard
library, working folder /w) and must end with exit 0 and leave exactly one of out.stl, out.obj, out.off, out.ply, a regular
file; or `mesh`, the text of an OBJ, OFF or ASCII STL itself (`format`, or recognised by its first word).

Score: gate(valid, see meshes.py) * weighted mean of the parts of mesh_score.py; weights by the card's `weights`. Passed
from a volume IoU of the card's `passed` (0.99).
"""

from __future__ import annotations

import base64
import binascii
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from schemas.tasks import Task
from schemas.verdicts import Part, Verdict, clip, infra, scored
from services.verifier import specs
from services.verifier.families import mesh_files, mesh_score, solids
from services.verifier.families.driven import ended
from services.verifier.families.mesh_text import Caps, MeshError
from services.verifier.jail import FileEntry, Jail, Job, Limits, Outcome

if TYPE_CHECKING:
    from services.verifier.families.meshes import Body

ARGV = ("/usr/bin/python3", "-S", "-s", "-B", "/w/answer.py")
RESULTS = {f"out.{kind}": kind for kind in mesh_files.FORMATS}
SPEC = ("kind", "want", "mesh", "align")
SETTINGS = (
    "answer",
    "format",
    "align",
    "weights",
    "tau",
    "samples",
    "triangles",
    "passed",
    "case_s",
    "case_cpu_s",
)
TEXTS = ("stl", "obj", "off")
PASSED = 0.99
MOST_TRIANGLES = 200_000
MOST_SAMPLES = 4096


def check_spec(spec: dict[str, Any], settings: dict[str, Any]) -> None:
    """The reference: `want` (a script of inside/cad.py) or `mesh` {`format`, `text` or `base64`}; `align` over the card's.

    Settings: see the module, mesh_score.Rule and meshes.py. Raises SpecError.
    """
    where = "verifier.settings"
    specs.keys(settings, SETTINGS, where)
    specs.choice(settings.get("answer", "script"), ("script", "mesh"), f"{where}.answer")
    if "format" in settings:
        specs.choice(settings["format"], TEXTS, f"{where}.format")
    specs.choice(settings.get("align", "none"), mesh_score.ALIGNMENTS, f"{where}.align")
    weights = specs.table(settings.get("weights", {}), f"{where}.weights")
    specs.keys(weights, tuple(mesh_score.WEIGHTS), f"{where}.weights")
    for name, weight in weights.items():
        specs.number(weight, f"{where}.weights.{name}", low=0.0, high=1e6)
    if weights and not sum(weights.values()):
        raise specs.SpecError(f"{where}.weights are all 0: give one that is not")
    specs.number(settings.get("tau", mesh_score.TAU), f"{where}.tau", low=1e-4, high=1e3)
    specs.number(settings.get("passed", PASSED), f"{where}.passed", low=0.0, high=1.0)
    for name, default, most in (
        ("samples", mesh_score.SAMPLES, MOST_SAMPLES),
        ("triangles", Caps().triangles, MOST_TRIANGLES),
    ):
        if specs.whole(settings.get(name, default), f"{where}.{name}", least=16) > most:
            raise specs.SpecError(f"{where}.{name} is more than {most}")
    specs.keys(spec, SPEC, "spec")
    specs.choice(spec.get("align", "none"), mesh_score.ALIGNMENTS, "spec.align")
    if ("want" in spec) == ("mesh" in spec):
        raise specs.SpecError("spec needs exactly one of want (a script) and mesh (a file)")
    try:
        _reference(*_source(spec))
    except (solids.SolidError, MeshError) as error:
        raise specs.SpecError(f"spec.{'want' if 'want' in spec else 'mesh'}: {error}") from error


def _source(spec: dict[str, Any]) -> tuple[str, bytes]:
    """Kind and bytes of the reference. Raises SpecError."""
    if "want" in spec:
        return "script", specs.text(spec["want"], "spec.want").encode("utf-8")
    mesh = specs.table(spec["mesh"], "spec.mesh")
    specs.keys(mesh, ("format", "text", "base64"), "spec.mesh")
    kind = specs.choice(mesh.get("format"), mesh_files.FORMATS, "spec.mesh.format")
    if ("text" in mesh) == ("base64" in mesh):
        raise specs.SpecError("spec.mesh needs exactly one of text and base64")
    if "text" in mesh:
        return kind, specs.text(mesh["text"], "spec.mesh.text").encode("utf-8")
    try:
        return kind, base64.b64decode(specs.text(mesh["base64"], "spec.mesh.base64"), validate=True)
    except (binascii.Error, ValueError) as error:
        raise specs.SpecError(f"spec.mesh.base64: {error}") from error


@lru_cache(maxsize=32)
def _reference(kind: str, source: bytes) -> Body:
    from services.verifier.families import meshes

    if kind == "script":
        return meshes.of_manifold(solids.build(solids.evaluate(source.decode("utf-8"))))
    return meshes.body(mesh_files.load(source, kind, Caps(MOST_TRIANGLES)))


def verify(task: Task, settings: dict[str, Any], limits: Limits, answer: str, jail: Jail) -> Verdict:
    """Score of the module's rule."""
    from services.verifier.families import meshes

    weights = settings.get("weights") or mesh_score.WEIGHTS
    try:
        if settings.get("answer", "script") == "mesh":
            kind, data = settings.get("format") or mesh_files.sniff(answer), answer.encode("utf-8")
        else:
            outcome = jail.run(
                Job(
                    argv=ARGV,
                    files={"answer.py": FileEntry(answer.encode("utf-8"))},
                    limits=limits,
                    keep=True,
                )
            )
            if outcome.cause == "infra":
                return infra(clip(f"the jail failed: {outcome.detail}"))
            kind, data = exported(outcome)
        body = meshes.body(mesh_files.load(data, kind, Caps(settings.get("triangles", Caps().triangles))))
    except MeshError as error:
        return _verdict(dict.fromkeys(mesh_score.WEIGHTS, 0.0), weights, 0.0, settings, str(error))
    rule = mesh_score.Rule(
        task.spec.get("align", settings.get("align", "none")),
        float(settings.get("tau", mesh_score.TAU)),
        settings.get("samples", mesh_score.SAMPLES),
    )
    parts = mesh_score.score(body, _reference(*_source(task.spec)), rule)
    return _verdict(parts, weights, 1.0, settings, f"{kind}, {len(body.mesh.faces)} triangles")


def exported(outcome: Outcome) -> tuple[str, bytes]:
    """Format and bytes of the one mesh file that a run left. Raises MeshError."""
    if outcome.cause != "exit" or outcome.exit_code != 0:
        raise MeshError(f"the script failed: {ended(outcome)}")
    found = [each for each in (*outcome.diff.created, *outcome.diff.changed) if each.path in RESULTS]
    if len(found) != 1:
        made = f"{len(found)} of them" if found else "none"
        raise MeshError(f"the script must leave one of {', '.join(RESULTS)}; it left {made}")
    if found[0].type != "file":
        raise MeshError(f"{found[0].path} is a {found[0].type}, not a regular file")
    data = outcome.snapshot.read(found[0].path) if outcome.snapshot is not None else None
    if data is None:
        raise MeshError(
            f"what the script left is too much to be kept ({found[0].path}: {found[0].size} bytes)"
        )
    return RESULTS[found[0].path], data


def _verdict(
    measured: dict[str, float], weights: Any, gate: float, settings: dict[str, Any], evidence: str
) -> Verdict:
    parts = [Part(name="valid", weight=0.0, score=gate, evidence=clip(evidence))]
    parts += [Part(name=n, weight=float(weights.get(n, 0.0)), score=each) for n, each in measured.items()]
    passed = gate == 1.0 and measured["iou"] >= float(settings.get("passed", PASSED))
    return scored(parts, gate=gate, passed=passed)
