"""A closed surface as a solid body. Invariant: every `Body` bounds its volume once, with its normals outwards.

The gate, in this order: at least four triangles left after equal vertices were made one and collapsed triangles dropped;
every edge in exactly two triangles (watertight) that run through it in opposite directions (winding consistent); positive
volume; winding number 0 or 1 at sampled points, two of them beside each closed surface; manifold3d status NoError and the
same volume.

The winding number is what makes hidden geometry useless: volumes by boolean are integrals of it, so a surface that wraps
half of a body twice would have the whole body's volume. Points are sampled just inside and just outside of the surface
(by area) and in its box; a ray from each counts the crossings, signed by the side (Jacobson et al. 2013 define the same
number by solid angles).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from services.verifier.families.mesh_files import Read
from services.verifier.families.mesh_text import MeshError

if TYPE_CHECKING:
    from manifold3d import Manifold
    from trimesh import Trimesh

LEAST_VOLUME = 1e-9
SEED = 20_260
SAMPLES = 512
"""Points of each kind: inside of the surface, outside of it, in the box."""
OFFSET = 1e-5
"""Distance of a sampled point from the surface, in diagonals."""
MAX_CROSSINGS = 4_000_000
"""Candidate triangles that all rays together may meet; the points after that are left out."""
MAX_PIECES = 4096
NEAR = 0.01
"""The offset of a point beside a small triangle, in square roots of its area."""
CHUNK = 32
EDGE = 1e-12
AGREE = 1e-6
# Any rotation without symmetry will do: rays must not run along a face or meet an edge of a body that was built on a grid.
TURN = ((0.36, 0.48, -0.8), (-0.8, 0.6, 0.0), (0.48, 0.64, 0.6))
TILT = 0.7317


@dataclass(frozen=True)
class Body:
    """A valid body: its surface (trimesh) and the same as a manifold."""

    mesh: Trimesh
    solid: Manifold

    @cached_property
    def bounds(self) -> Any:
        """Lowest and highest corner, (2, 3)."""
        return self.mesh.bounds

    @cached_property
    def diagonal(self) -> float:
        """Length of the box's diagonal."""
        return float(math.dist(*self.bounds.tolist()))


def body(read: Read) -> Body:
    """The body that a mesh bounds. Raises MeshError, the reason in one line."""
    mesh = _welded(read)
    if len(mesh.faces) < 4:  # noqa: PLR2004
        raise MeshError("fewer than four triangles that are not collapsed")
    if not mesh.is_watertight:
        raise MeshError("not watertight: an edge is not shared by exactly two triangles")
    if not mesh.is_winding_consistent:
        raise MeshError("the triangles do not all face the same side")
    volume = _volume(mesh)
    if not math.isfinite(volume) or volume <= LEAST_VOLUME:
        inward = volume < -LEAST_VOLUME
        raise MeshError("the normals point inwards" if inward else "no positive volume")
    wrong = windings(mesh)
    if wrong is not None:
        raise MeshError(f"the surface overlaps itself: it goes {wrong} times around a point")
    return Body(mesh, _manifold(mesh, volume))


def of_manifold(solid: Manifold) -> Body:
    """The body of a reference that is a manifold already."""
    import numpy as np

    made = solid.to_mesh64()
    return body(Read(np.array(made.vert_properties[:, :3]), np.array(made.tri_verts, dtype=np.int64)))


def moved(given: Body, matrix: Any) -> Body:
    """`given` after a similarity transform (4, 4) that keeps its orientation."""
    import numpy as np

    mesh = given.mesh.copy()
    mesh.apply_transform(matrix)
    return Body(mesh, given.solid.transform(np.asarray(matrix)[:3]))


def _welded(read: Read) -> Trimesh:
    import trimesh

    mesh = trimesh.Trimesh(read.vertices, read.faces, process=False, validate=False)
    if not mesh.is_watertight:
        mesh.merge_vertices()
    faces = mesh.faces
    kept = (faces[:, 0] != faces[:, 1]) & (faces[:, 1] != faces[:, 2]) & (faces[:, 2] != faces[:, 0])
    return trimesh.Trimesh(mesh.vertices, faces[kept], process=False, validate=False)


def _volume(mesh: Trimesh) -> float:
    """By the divergence theorem, about the middle of the box; the loader's own has a warning for a volume of 0."""
    import numpy as np

    a, b, c = np.moveaxis(np.asarray(mesh.triangles) - mesh.bounds.mean(axis=0), 1, 0)
    return float((a * np.cross(b, c)).sum() / 6.0)


def _manifold(mesh: Trimesh, volume: float) -> Manifold:
    import numpy as np
    from manifold3d import Manifold, Mesh64

    solid = Manifold(
        Mesh64(
            np.ascontiguousarray(mesh.vertices, dtype=np.float64),
            np.ascontiguousarray(mesh.faces, dtype=np.uint64),
        )
    )
    if solid.status().name != "NoError" or solid.is_empty():
        raise MeshError(f"not a manifold: {solid.status().name}")
    if not math.isclose(solid.volume(), volume, rel_tol=AGREE):
        raise MeshError("not a manifold: its volume is not that of its surface")
    return solid


def windings(mesh: Trimesh) -> int | None:
    """A winding number other than 0 and 1 at one of the sampled points, or None. Bounded work, same answer each time."""
    import numpy as np

    triangles = np.asarray(mesh.triangles) @ np.array(TURN).T
    triangles[:, :, 0] += TILT * triangles[:, :, 2]
    points = _points(mesh) @ np.array(TURN).T
    points[:, 0] += TILT * points[:, 2]
    tree = _tree(triangles)
    top = float(triangles[:, :, 2].max()) + 1.0
    met = 0
    for start in range(0, len(points), CHUNK):
        part = points[start : start + CHUNK]
        high = part.copy()
        high[:, 2] = top
        found, counts = tree.intersection_v(part, high)
        wrong = _wrong(part, np.repeat(np.arange(len(part)), counts.astype(np.int64)), triangles[found])
        if wrong is not None:
            return wrong
        met += len(found)
        if met > MAX_CROSSINGS:
            break
    return None


def _tree(triangles: Any) -> Any:
    import numpy as np
    from rtree.index import Index, Property

    low = np.ascontiguousarray(triangles.min(axis=1))
    high = np.ascontiguousarray(triangles.max(axis=1))
    return Index((np.arange(len(triangles)), low, high), properties=Property(dimension=3), interleaved=True)


def _points(mesh: Trimesh) -> Any:
    """The sampled points: beside the largest triangle of each closed surface; then all kinds in turn.

    Any first part holds all kinds, so the work may end after any.
    """
    import numpy as np
    import trimesh

    low, high = mesh.bounds
    step = OFFSET * float(np.linalg.norm(high - low))
    triangles, normals = np.asarray(mesh.triangles), np.asarray(mesh.face_normals)
    piece = trimesh.graph.connected_component_labels(mesh.face_adjacency, node_count=len(triangles))
    order = np.lexsort((-mesh.area_faces, piece))
    largest = order[np.unique(piece[order], return_index=True)[1]][:MAX_PIECES]
    near = np.minimum(step, NEAR * np.sqrt(mesh.area_faces[largest]))[:, None] * normals[largest]
    middle = triangles[largest].mean(axis=1)
    on, where = trimesh.sample.sample_surface(mesh, SAMPLES, seed=SEED)
    box = low + (high - low) * np.random.default_rng(SEED).random((len(on), 3))
    away = step * normals[where]
    beside = np.stack((middle - near, middle + near), axis=1).reshape(-1, 3)
    return np.concatenate((beside, np.stack((on - away, on + away, box), axis=1).reshape(-1, 3)))


def _wrong(points: Any, owner: Any, triangles: Any) -> int | None:
    """The first winding number that is neither 0 nor 1; a ray that passes an edge too closely counts as right."""
    import numpy as np

    flat = triangles[:, :, :2] - points[owner][:, None, :2]
    a, b, c = flat[:, 0], flat[:, 1], flat[:, 2]
    sides = np.stack([p[:, 0] * q[:, 1] - p[:, 1] * q[:, 0] for p, q in ((b, c), (c, a), (a, b))], axis=1)
    area = sides.sum(axis=1)
    scale = np.abs(flat).max(axis=(1, 2)) ** 2 + np.finfo(float).tiny
    close = np.abs(sides) <= EDGE * scale[:, None]
    inside = (sides > 0).all(axis=1) | (sides < 0).all(axis=1)
    doubtful = close.any(axis=1) & (
        (sides >= -EDGE * scale[:, None]).all(axis=1) | (sides <= EDGE * scale[:, None]).all(axis=1)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        height = (sides * triangles[:, :, 2]).sum(axis=1) / area
    above = inside & ~doubtful & (height > points[owner][:, 2])
    count = np.zeros(len(points), dtype=np.int64)
    np.add.at(count, owner[above], np.sign(area[above]).astype(np.int64))
    count[np.unique(owner[doubtful])] = 0
    wrong = np.flatnonzero((count != 0) & (count != 1))
    return int(count[wrong[0]]) if len(wrong) else None
