"""Solids from recorded operations. Invariant: data in, figures out; whatever is not a finite, bounded, solid body is refused.

Works on the table of `inside/cad.py`: rows `[op, [numbers], [rows of its parts]]`, the whole body last.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from services.verifier.inside import cad

if TYPE_CHECKING:
    from manifold3d import Manifold

LIMIT = 1e4
LEAST = 1e-3
MAX_TRIANGLES = 50_000
MAX_WORK = 1_000_000
SEGMENTS = 48
DIGITS = 6
OPERATIONS = ("+", "-", "&")
FIELDS = ("op", "numbers", "parts")


class SolidError(ValueError):
    """No body that can be measured; the message is one line."""


@dataclass(frozen=True, slots=True)
class Measure:
    """Agreement of two bodies: volume and bounding box, intersection over union, each in [0, 1]."""

    iou: float
    box_iou: float


def check_rows(rows: Any) -> list[tuple[str, list[float], list[int]]]:
    """`rows` if they are a table of operations: known ones, right arities, finite numbers within LIMIT, parts earlier.

    Raises:
        SolidError: anything else.
    """
    if not isinstance(rows, list) or not rows:
        raise SolidError("no solid")
    if len(rows) > cad.MAX_NODES:
        raise SolidError(f"{len(rows)} operations, {cad.MAX_NODES} are allowed")
    made: list[tuple[str, list[float], list[int]]] = []
    for index, row in enumerate(rows):
        if (
            not isinstance(row, list)
            or len(row) != len(FIELDS)
            or not isinstance(row[1], list)
            or not isinstance(row[2], list)
        ):
            raise SolidError(f"operation {index} is malformed")
        op, numbers, parts = row
        if not isinstance(op, str) or (op not in cad.SIZES and op not in OPERATIONS):
            raise SolidError(f"operation {index} is unknown")
        if len(numbers) != cad.SIZES.get(op, 0) or len(parts) != _arity(op):
            raise SolidError(f"operation {index} has the wrong arguments")
        for number in numbers:
            if type(number) not in (int, float) or not math.isfinite(number) or abs(number) > LIMIT:
                raise SolidError(f"{op} has a number that is not finite or beyond {LIMIT:g}")
            if op != "move" and number < LEAST:
                raise SolidError(f"{op} has a length below {LEAST:g}")
        if any(type(part) is not int or not 0 <= part < index for part in parts):
            raise SolidError(f"operation {index} works on something that is not there")
        made.append((op, [float(number) for number in numbers], list(parts)))
    return made


def _arity(op: str) -> int:
    return 2 if op in OPERATIONS else 1 if op in ("move", "scale") else 0


def build(rows: Any) -> Manifold:
    """The body of a table. Raises SolidError: malformed, too many triangles (of one body, or of all steps), or empty."""
    bodies: list[Manifold] = []
    work = 0
    for op, numbers, parts in check_rows(rows):
        # Without its history: a body that is used twice at each step would drag along twice as much at each.
        body = _body(op, numbers, [bodies[part] for part in parts]).as_original()
        work += body.num_tri()
        if body.num_tri() > MAX_TRIANGLES or work > MAX_WORK:
            raise SolidError(f"more than {MAX_TRIANGLES} triangles, or {MAX_WORK} in all steps")
        bodies.append(body)
    whole = bodies[-1]
    if whole.status().name != "NoError" or whole.is_empty():
        raise SolidError("the solid is empty")
    volume, box = whole.volume(), whole.bounding_box()
    if (
        not math.isfinite(volume)
        or volume <= LEAST**3
        or not all(math.isfinite(x) and abs(x) <= 10 * LIMIT for x in box)
    ):
        raise SolidError("the solid has no finite positive volume within bounds")
    return whole


def _body(op: str, numbers: list[float], parts: list[Manifold]) -> Manifold:
    from manifold3d import Manifold

    if op == "box":
        return Manifold.cube((numbers[0], numbers[1], numbers[2]), center=True)
    if op == "cyl":
        return Manifold.cylinder(numbers[1], numbers[0], circular_segments=SEGMENTS, center=True)
    if op == "sphere":
        return Manifold.sphere(numbers[0], circular_segments=SEGMENTS)
    if op == "move":
        return parts[0].translate((numbers[0], numbers[1], numbers[2]))
    if op == "scale":
        return parts[0].scale((numbers[0], numbers[0], numbers[0]))
    return parts[0] + parts[1] if op == "+" else parts[0] - parts[1] if op == "-" else parts[0] ^ parts[1]


def compare(left: Manifold, right: Manifold) -> Measure:
    """IoU of the volumes (by boolean intersection) and of the bounding boxes, rounded so that a rebuilt body agrees fully."""
    common = max(0.0, (left ^ right).volume())
    union = left.volume() + right.volume() - common
    a, b = left.bounding_box(), right.bounding_box()
    inner = math.prod(max(0.0, min(a[i + 3], b[i + 3]) - max(a[i], b[i])) for i in range(3))
    outer = (
        math.prod(a[i + 3] - a[i] for i in range(3)) + math.prod(b[i + 3] - b[i] for i in range(3)) - inner
    )
    return Measure(_ratio(common, union), _ratio(inner, outer))


def _ratio(part: float, whole: float) -> float:
    if not (math.isfinite(part) and math.isfinite(whole)) or whole <= 0.0:
        return 0.0
    return round(min(1.0, max(0.0, part / whole)), DIGITS)


def evaluate(script: str) -> list[list[Any]]:
    """The table of a trusted script of the same language, read from its syntax tree and never executed.

    Assignments, calls of the language's functions, `+ - &` between solids, `+ - * /` between numbers; the value is that
    of a single expression, or of `shape`.

    Raises:
        SolidError: anything else.
    """
    names: dict[str, Any] = {}
    try:
        body = ast.parse(script.strip()).body
        value: Any = None
        for index, node in enumerate(body):
            if (
                isinstance(node, ast.Assign)
                and len(node.targets) == 1
                and isinstance(node.targets[0], ast.Name)
            ):
                names[node.targets[0].id] = _value(node.value, names)
            elif isinstance(node, ast.Expr) and len(body) == 1 and index == 0:
                value = _value(node.value, names)
            else:
                raise SolidError("only assignments, or one expression, are allowed")
        return cad.nodes(names.get("shape") if value is None else value)
    except (SyntaxError, TypeError, ArithmeticError, RecursionError, cad.CadError) as error:
        raise SolidError(f"not a script: {error}") from error


BINARY: tuple[tuple[type[ast.operator], Callable[[Any, Any], Any], bool, bool], ...] = (
    (ast.Add, operator.add, True, True),
    (ast.Sub, operator.sub, True, True),
    (ast.BitAnd, operator.and_, True, False),
    (ast.Mult, operator.mul, False, True),
    (ast.Div, operator.truediv, False, True),
)
"""Operator, what it does, and whether it is one of solids and of numbers."""


def _value(node: ast.expr, names: dict[str, Any]) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    if isinstance(node, ast.Name) and node.id in names:
        return names[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, names)
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in cad.NAMES
        and not node.keywords
    ):
        return getattr(cad, node.func.id)(*(_value(argument, names) for argument in node.args))
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, names), _value(node.right, names)
        solid = isinstance(left, cad.Solid)
        for kind, function, for_solids, for_numbers in BINARY:
            if isinstance(node.op, kind) and (for_solids if solid else for_numbers):
                return function(left, right)
    raise SolidError(f"not allowed in a script: {ast.unparse(node)[:40]}")
