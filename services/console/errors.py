"""Errors a person sees. Invariant: one line that says what, where, and what to do; the exit status is part of the error."""

from __future__ import annotations

DONE, NO, WRONG_USE, OUTSIDE = 0, 1, 2, 3
"""Exit statuses: done, the answer is no, wrong use, something outside failed."""


class ConsoleError(Exception):
    """A command cannot go on; `status` is its exit status."""

    def __init__(self, message: str, status: int = OUTSIDE) -> None:
        super().__init__(message)
        self.status = status
