"""Commands that another service answers. Invariant: the console never imports a service; it runs the service's own command."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from services.console.errors import OUTSIDE, ConsoleError
from services.runtime import parent

REPLAY_S = 600.0


def run_service(service: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> int:
    """Run `python -m services.<service> <arguments>` on this terminal and return its exit status.

    What would end this process ends the service's command, which tidies up.
    """
    return parent.run([sys.executable, "-m", f"services.{service}", *arguments], environment)


def ask_service(
    service: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    log: Path,
    timeout_s: float = REPLAY_S,
) -> bytes:
    """Standard output of `python -m services.<service> <arguments>`; its standard error is appended to `log`.

    Raises:
        ConsoleError: no answer in time, or exit status 2 or 3.
    """
    with log.open("ab") as errors:
        try:
            done = subprocess.run(
                [sys.executable, "-m", f"services.{service}", *arguments],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ConsoleError(
                f"{service} {arguments[0]}: no answer within {timeout_s:.0f} s (log: {log})"
            ) from error
    if done.returncode >= 2:  # noqa: PLR2004 (the exit statuses of the design)
        raise ConsoleError(
            f"{service} {arguments[0]} failed with status {done.returncode} (log: {log})", OUTSIDE
        )
    return done.stdout
