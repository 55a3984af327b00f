"""Samples put together from segments. Invariant: spans cover the tokens without gap or overlap, neighbours differ in version."""

from __future__ import annotations

from dataclasses import dataclass, field

from schemas.trajectories import Finish, Span
from services.sampler.engines.port import Segment


@dataclass(slots=True)
class Assembly:
    """One sample as it grows."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: Finish | None = None
    first_at: float = 0.0
    last_at: float = 0.0
    _starts: list[tuple[int, int]] = field(default_factory=list)
    """(version, first token)"""

    def add(self, segment: Segment, now: float) -> None:
        """Append a segment that arrived at `now`.

        Raises:
            ValueError: the sample has finished, or tokens and log-probabilities differ in number.
        """
        if self.finish is not None:
            raise ValueError(f"sample {segment.index} of {segment.request_id} has finished already")
        if len(segment.token_ids) != len(segment.logprobs):
            raise ValueError(
                f"{len(segment.token_ids)} tokens with {len(segment.logprobs)} log-probabilities"
            )
        if segment.token_ids:
            if not self._starts or self._starts[-1][0] != segment.version:
                self._starts.append((segment.version, len(self.token_ids)))
            self.first_at = self.first_at or now
            self.last_at = now
        self.token_ids += segment.token_ids
        self.logprobs += segment.logprobs
        self.finish = segment.finish

    def spans(self) -> tuple[Span, ...]:
        """Which version sampled which tokens."""
        ends = [*(start for _, start in self._starts), len(self.token_ids)][1:]
        return tuple(
            Span(version=version, start=start, end=end)
            for (version, start), end in zip(self._starts, ends, strict=True)
        )
