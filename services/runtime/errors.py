"""The two kinds of failure a process may end with. Invariant: each message is one line that says what, where and what to do."""

from __future__ import annotations


class BadInput(ValueError):  # noqa: N818 (reads as what it is)
    """The user gave something that cannot work; exit status 2."""


class Unavailable(RuntimeError):  # noqa: N818 (as above)
    """Something outside the process is missing or failed: broker, Redis, disk; exit status 3."""


def one_line(error: BaseException) -> str:
    """The error's message on one line, its type name in front unless it is one of ours."""
    text = " ".join(str(error).split())
    if isinstance(error, BadInput | Unavailable):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
