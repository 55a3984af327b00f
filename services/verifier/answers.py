"""The submitted bytes. Invariant: a family sees only non-empty UTF-8 text within the limit; all else is the model's fault."""

from __future__ import annotations


class UnusableAnswerError(ValueError):
    """An answer that cannot be looked at; becomes an `invalid` verdict with this one line."""


def decode(submission: bytes) -> str:
    """The answer's text.

    Raises:
        UnusableAnswerError: empty (blank counts as empty) or not UTF-8.
    """
    try:
        text = submission.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnusableAnswerError(f"the answer is not valid UTF-8 (byte {error.start})") from error
    # Blank as text, not as bytes: what only holds such characters as U+001C or U+00A0 has no word and no line.
    if not text.strip():
        raise UnusableAnswerError("the answer is empty")
    return text


def check_size(size: int, limit: int) -> None:
    """Raises UnusableAnswerError if an answer of `size` bytes has more than `limit`."""
    if size > limit:
        raise UnusableAnswerError(f"the answer has {size} bytes, {limit} are allowed")
