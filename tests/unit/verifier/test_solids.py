from __future__ import annotations

import math
from typing import Any

import pytest

from services.verifier.families import solids
from services.verifier.inside import cad

SCRIPTS = (
    "box(2,3,4)",
    "cyl(1.5, 2)",
    "sphere(3)",
    "move(box(2,2,2),1,-2,0.5)",
    "box(4,4,4)-cyl(1,4)+move(sphere(1),0,0,2)",
    "box(4,4,4) & sphere(2*1.25)",
    "scale(box(1,1,1),2)",
)


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_evaluator_agrees_with_python_itself(script: str) -> None:
    language = {name: getattr(cad, name) for name in cad.NAMES}
    assert solids.evaluate(script) == cad.nodes(eval(script, language))


def test_assignments_and_a_shared_part() -> None:
    rows = solids.evaluate("a = box(1,1,1)\nshape = a + move(a, 2, 0, 0)")
    assert [row[0] for row in rows] == ["box", "move", "+"]


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_body_agrees_fully_with_itself(script: str) -> None:
    rows = solids.evaluate(script)
    assert solids.compare(solids.build(rows), solids.build(rows)) == solids.Measure(1.0, 1.0)


def test_known_overlaps() -> None:
    def compare(a: str, b: str) -> solids.Measure:
        return solids.compare(solids.build(solids.evaluate(a)), solids.build(solids.evaluate(b)))

    half = compare("box(2,2,2)", "move(box(2,2,2),1,0,0)")
    assert half.iou == pytest.approx(1 / 3, abs=1e-5)
    assert compare("box(2,2,2)", "box(2,2,1)") == solids.Measure(0.5, 0.5)
    assert compare("box(1,1,1)", "move(box(1,1,1),5,0,0)") == solids.Measure(0.0, 0.0)
    # Millimetres for metres.
    assert compare("box(1,1,1)", "box(1000,1000,1000)").iou < 1e-6
    hollow = solids.build(solids.evaluate("box(4,4,4)-box(2,2,2)"))
    assert hollow.volume() == pytest.approx(64 - 8)
    assert solids.build(solids.evaluate("cyl(2,3)")).volume() == pytest.approx(math.pi * 12, rel=0.01)


@pytest.mark.parametrize(
    "rows",
    [
        None,
        [],
        [["box", [1, 1], []]],
        [["box", [1, 1, math.nan], []]],
        [["box", [1, 1, 1e5], []]],
        [["box", [1, 1, 0], []]],
        [["box", [1, 1, -1], []]],
        [["box", [1, 1, True], []]],
        [["exec", ["x"], []]],
        [["+", [], [0, 0]]],
        [["box", [1, 1, 1], []], ["+", [], [0, 1]]],
        [["box", [1, 1, 1], []], ["+", [], [0, -1]]],
        [["box", [1, 1, 1], []], ["-", [], [0, 0]]],
        [["box", [1, 1, 1], []]] * 300,
        [["box", "111", []]],
        [1],
    ],
)
def test_what_is_no_body_is_refused(rows: Any) -> None:
    with pytest.raises(solids.SolidError):
        solids.build(rows)


@pytest.mark.parametrize(
    "script",
    [
        "__import__('os')",
        "box(1,2)",
        "box(1,2,3).parts",
        "5",
        "box(1,2,3)+1",
        "x",
        "box(1/0,1,1)",
        "s = box(1,1,1)",
        "box(",
        "",
    ],
)
def test_a_reference_may_only_use_the_language(script: str) -> None:
    with pytest.raises(solids.SolidError):
        solids.evaluate(script)


def test_doubling_is_no_explosion() -> None:
    shape: Any = cad.box(1, 1, 1)
    for _ in range(60):
        shape = shape + shape
    rows = cad.nodes(shape)
    assert len(rows) == 61
    assert solids.build(rows).volume() == pytest.approx(1.0)
    for _ in range(200):
        shape = shape + shape
    with pytest.raises(cad.CadError):
        cad.nodes(shape)
