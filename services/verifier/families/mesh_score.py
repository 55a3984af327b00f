"""How far a body agrees with a reference. Invariant: every part is finite in [0, 1], and 1 for the reference itself.

`iou`         volume in both over volume in either, by boolean (manifold3d);
`chamfer`     exp(-CD / (tau * diagonal of the reference)), CD the mean of both directions' mean distance from points on
              one surface (seeded, area-weighted) to the nearest point of the other: no distance is left between two
              tessellations of one shape, as there would be between two samples;
`box`         volume in both bounding boxes over volume in either;
`topology`    half for the number of closed surfaces, half for the Euler number;
`silhouette`  see silhouettes.py.

The last two say nothing of a body that lies elsewhere: they are 0 below a volume IoU of LEAST_IOU. Before all this the
answer, never the reference, is moved by the alignment rule: `none`; `translate` (centre of its box to that of the
reference's); `scale_to_unit_box` (that, and scaled so that the longest edges of the boxes are equal); `rotations24`
(`translate`, in the best by volume IoU of the 24 orientations of a cube).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from services.verifier.families import silhouettes, solids
from services.verifier.families.meshes import SEED, Body, moved

if TYPE_CHECKING:
    from trimesh import Trimesh

ALIGNMENTS = ("none", "translate", "scale_to_unit_box", "rotations24")
WEIGHTS: Mapping[str, float] = {"iou": 0.6, "chamfer": 0.15, "box": 0.1, "topology": 0.1, "silhouette": 0.05}
TAU = 0.05
SAMPLES = 512
LEAST_IOU = 0.01
DIGITS = 4
"""Parts are rounded: a binary STL keeps 24 bits of a coordinate, and the reference's own must score 1."""
MAX_PAIRS = 1_500_000
"""Pairs of a point and a triangle near it that one direction may look at; the points after that are left out."""
MAX_AT_ONCE = 300_000
MAX_TURNED = 100_000
"""Triangles that all orientations together may have; the best by bounding box are tried first."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What a card states: `align`, `tau` (diagonals), `samples` a direction."""

    align: str = "none"
    tau: float = TAU
    samples: int = SAMPLES


def score(answer: Body, reference: Body, rule: Rule) -> dict[str, float]:
    """The parts by name, as in WEIGHTS."""
    placed = aligned(answer, reference, rule.align)
    measure = solids.compare(placed.solid, reference.solid)
    iou = round(measure.iou, DIGITS)
    there = iou >= LEAST_IOU
    return {
        "iou": iou,
        "chamfer": round(
            math.exp(-chamfer(placed, reference, rule.samples) / (rule.tau * reference.diagonal)), DIGITS
        ),
        "box": round(measure.box_iou, DIGITS),
        "topology": _topology(placed, reference) if there else 0.0,
        "silhouette": _silhouette(placed, reference) if there else 0.0,
    }


def aligned(answer: Body, reference: Body, rule: str) -> Body:
    """`answer` moved by the rule onto `reference`."""
    if rule == "none":
        return answer
    if rule != "rotations24":
        return moved(answer, _onto(answer.bounds, reference.bounds, scale=rule == "scale_to_unit_box"))
    made = [moved(answer, turn) for turn in _cheapest(answer, reference)]
    # max takes the first of equals: the order of the orientations decides, the same each time.
    return max(made, key=lambda each: solids.compare(each.solid, reference.solid).iou)


def _onto(bounds: Any, target: Any, *, scale: bool) -> Any:
    import numpy as np

    factor = float((target[1] - target[0]).max() / (bounds[1] - bounds[0]).max()) if scale else 1.0
    matrix = np.eye(4) * (factor, factor, factor, 1.0)
    matrix[:3, 3] = target.mean(axis=0) - factor * bounds.mean(axis=0)
    return matrix


def _cheapest(answer: Body, reference: Body) -> list[Any]:
    """Matrices of the orientations to try, by how well the boxes agree."""
    import numpy as np

    found = []
    for axes in itertools.permutations(range(3)):
        for signs in itertools.product((1.0, -1.0), repeat=3):
            turn = np.zeros((3, 3))
            turn[range(3), axes] = signs
            if np.linalg.det(turn) < 0:
                continue
            centre, half = answer.bounds.mean(axis=0), (answer.bounds[1] - answer.bounds[0]) / 2
            size = np.abs(turn @ half)
            want = (reference.bounds[1] - reference.bounds[0]) / 2
            common, matrix = float(np.minimum(size, want).prod()), np.eye(4)
            matrix[:3, :3] = turn
            matrix[:3, 3] = reference.bounds.mean(axis=0) - turn @ centre
            found.append((round(common / (size.prod() + want.prod() - common), DIGITS), matrix))
    found.sort(key=lambda pair: -pair[0])
    return [matrix for _, matrix in found[: max(1, MAX_TURNED // len(answer.mesh.faces))]]


def chamfer(left: Body, right: Body, samples: int) -> float:
    """Mean distance of points on either surface to the other, a length; half each direction."""
    return (_one_way(left.mesh, right.mesh, samples) + _one_way(right.mesh, left.mesh, samples)) / 2


def _one_way(source: Trimesh, target: Trimesh, samples: int) -> float:
    import numpy as np
    import trimesh

    # Without triangles that have no area: they have no nearest point of their own.
    surface = trimesh.Trimesh(target.vertices, target.faces[target.area_faces > 0], process=False)
    triangles = np.asarray(surface.triangles)
    points, _ = trimesh.sample.sample_surface(source, samples, seed=SEED)
    at_once = max(1, MAX_AT_ONCE // len(triangles))
    total, done, looked = 0.0, 0, 0
    while done < len(points) and looked < MAX_PAIRS:
        part = points[done : done + at_once]
        near = trimesh.proximity.nearby_faces(surface, part)
        counts = np.array([len(each) for each in near])
        found, owner = np.concatenate(near), np.repeat(np.arange(len(part)), counts)
        with np.errstate(divide="ignore", invalid="ignore"):
            nearest = trimesh.triangles.closest_point(triangles[found], part[owner])
        distances = np.linalg.norm(nearest - part[owner], axis=1)
        total += float(np.fmin.reduceat(distances, np.cumsum(counts) - counts).sum())
        done, looked = done + len(part), looked + len(found)
    mean = total / done
    return mean if math.isfinite(mean) else math.inf


def _topology(left: Body, right: Body) -> float:
    bodies = bool(left.mesh.body_count == right.mesh.body_count)
    return (bodies + bool(left.mesh.euler_number == right.mesh.euler_number)) / 2


def _silhouette(left: Body, right: Body) -> float:
    seen = [silhouettes.views(each.mesh, right.bounds) for each in (left, right)]
    return round(silhouettes.agreement(*seen), DIGITS)
