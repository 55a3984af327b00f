"""Every way the embedded stack can fail is one typed error whose message is one line that says what to do."""

from services.runtime.errors import Unavailable


class StackError(Unavailable):
    """The broker or Redis cannot be had; `str(error)` is one line: what, where, what to do."""
