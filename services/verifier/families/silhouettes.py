"""Silhouettes of a body: three orthographic views, drawn in black and white. Invariant: pure, and the same on every machine.

The cameras look along the axes and are framed by the reference, never by the answer: what reaches out of the frame is not
seen (volume and box see it). A pixel is black where its centre lies in the projection of a triangle, so two tessellations
of one shape give one picture; the centres lie off every round number, so that edges rarely meet one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimesh import Trimesh

PIXELS = 64
MARGIN = 0.2503
"""Room on each side of the reference, in lengths of the longest edge of its box."""
VIEWS = ((1, 2), (0, 2), (0, 1))
CHUNK = 4096
EDGE = 1e-7
"""Pixels: a centre this close to an edge is black."""


def views(mesh: Trimesh, bounds: Any) -> Any:
    """Pictures (3, PIXELS, PIXELS) of `mesh` by the cameras that `bounds` (2, 3), of the reference, frame."""
    import numpy as np

    low, high = np.asarray(bounds)
    longest = float((high - low).max())
    start = (low + high) / 2 - longest * (0.5 + MARGIN)
    scale = PIXELS / (longest * (1 + 2 * MARGIN))
    placed = (np.asarray(mesh.triangles) - start) * scale
    return np.stack([_drawn(placed[:, :, view]) for view in VIEWS])


def agreement(left: Any, right: Any) -> float:
    """Mean over the views of black pixels in both over black pixels in either; 0 for a view without any."""
    both, either = (left & right).sum(axis=(1, 2)), (left | right).sum(axis=(1, 2))
    return float(
        sum(b / e if e else 0.0 for b, e in zip(both.tolist(), either.tolist(), strict=True)) / len(both)
    )


def _drawn(triangles: Any) -> Any:
    """One picture of triangles (n, 3, 2) in pixels: for each row of centres, the span of each triangle, summed up."""
    import numpy as np

    edges = np.zeros((PIXELS, PIXELS + 1), dtype=np.int64)
    rows = np.arange(PIXELS) + 0.5
    for at in range(0, len(triangles), CHUNK):
        part = triangles[at : at + CHUNK]
        left = np.full((len(part), PIXELS), np.inf)
        right = np.full((len(part), PIXELS), -np.inf)
        for first, second in ((0, 1), (1, 2), (2, 0)):
            a, b = part[:, first, None, :], part[:, second, None, :]
            rise = b[:, :, 1] - a[:, :, 1]
            share = (rows - a[:, :, 1]) / np.where(rise == 0, 1.0, rise)
            x = a[:, :, 0] + share * (b[:, :, 0] - a[:, :, 0])
            met = (rise != 0) & (share >= -EDGE) & (share <= 1 + EDGE)
            left = np.where(met, np.minimum(left, x), left)
            right = np.where(met, np.maximum(right, x), right)
        first_pixel = np.clip(np.ceil(left - 0.5 - EDGE), 0, PIXELS)
        past_pixel = np.clip(np.floor(right - 0.5 + EDGE) + 1, 0, PIXELS)
        item, row = np.nonzero(past_pixel > first_pixel)
        np.add.at(edges, (row, first_pixel[item, row].astype(np.int64)), 1)
        np.add.at(edges, (row, past_pixel[item, row].astype(np.int64)), -1)
    return np.cumsum(edges, axis=1)[:, :PIXELS] > 0
