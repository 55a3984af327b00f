"""Numbers and faces of a mesh in text. Invariant: nothing is taken that is not finite, in range and within the caps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

MAX_WORD = 40
MAX_DIGITS = 9
MAX_LINE = 100_000


class MeshError(ValueError):
    """No mesh that can be measured; the message is one line."""


@dataclass(frozen=True, slots=True)
class Caps:
    """What a mesh may have at most. Vertices: three times the triangles, as in a file that shares none."""

    triangles: int = 50_000
    bytes: int = 16 << 20

    def check(self, vertices: int, triangles: int) -> None:
        """Raises MeshError if an announced or counted number is beyond the cap."""
        if triangles > self.triangles:
            raise MeshError(f"{triangles} triangles, {self.triangles} are allowed")
        if vertices > 3 * self.triangles:
            raise MeshError(f"{vertices} vertices, {3 * self.triangles} are allowed")


def lines(data: bytes) -> Iterator[list[str]]:
    """The words of each line that has any, without comments. Raises MeshError: not ASCII, or an endless line."""
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError as error:
        raise MeshError(f"the mesh is no ASCII text (byte {error.start})") from error
    for line in text.replace("\r", "\n").split("\n"):
        if len(line) > MAX_LINE:
            raise MeshError(f"a line has more than {MAX_LINE} characters")
        words = line.partition("#")[0].split()
        if words:
            yield words


def point(words: Sequence[str], count: int) -> Sequence[str]:
    """The three coordinates of a vertex of which `count` were given. Raises MeshError: not three finite numbers."""
    if count != 3 or len(words) != 3:  # noqa: PLR2004
        raise MeshError(f"a vertex has {count} coordinates")
    for word in words:
        if len(word) > MAX_WORD or "_" in word:
            raise MeshError(f"not a coordinate: {word[:MAX_WORD]!r}")
        try:
            value = float(word)
        except ValueError as error:
            raise MeshError(f"not a coordinate: {word[:MAX_WORD]!r}") from error
        if not math.isfinite(value):
            raise MeshError("a coordinate is not finite")
    return words


def whole(word: str) -> int:
    """A count or an index, of plain digits. Raises MeshError."""
    if not (word.isascii() and word.isdigit() and len(word) <= MAX_DIGITS):
        raise MeshError(f"not a count or an index from the start: {word[:MAX_WORD]!r}")
    return int(word)


@dataclass(slots=True)
class Soup:
    """Vertices (as text) and triangles, collected under caps. `faces` counts the polygons that the triangles are fans of."""

    caps: Caps
    points: list[str] = field(default_factory=list)
    triangles: list[tuple[int, int, int]] = field(default_factory=list)
    faces: int = 0

    def vertex(self, words: Sequence[str], count: int) -> None:
        """Add one. Raises MeshError."""
        self.points.append(" ".join(point(words, count)))
        self.caps.check(len(self.points), 0)

    def face(self, corners: Sequence[int]) -> None:
        """Add one polygon as a fan; indices from 0. Raises MeshError."""
        if len(corners) < 3:  # noqa: PLR2004
            raise MeshError(f"a face has {len(corners)} corners")
        self.caps.check(0, len(self.triangles) + len(corners) - 2)
        self.faces += 1
        self.triangles.extend((corners[0], corners[n], corners[n + 1]) for n in range(1, len(corners) - 1))

    def end(self) -> None:
        """Raises MeshError: empty, or a face names a vertex that is not there."""
        if not self.points or not self.triangles:
            raise MeshError("the mesh is empty")
        if any(not 0 <= corner < len(self.points) for triangle in self.triangles for corner in triangle):
            raise MeshError("a face names a vertex that is not there")

    def off(self) -> bytes:
        """As an OFF file."""
        rows = [f"OFF\n{len(self.points)} {len(self.triangles)} 0", *self.points]
        rows += [f"3 {a} {b} {c}" for a, b, c in self.triangles]
        return ("\n".join(rows) + "\n").encode("ascii")
