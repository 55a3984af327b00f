"""Names to addresses, as this machine resolves them.

Invariant: a look-up ends by its deadline and leaves nothing running. The C library's own look-up cannot be broken off
in a thread, so it runs in a small process (`getent`), which can be killed.
"""

from __future__ import annotations

import asyncio
import ipaddress
import shutil
from asyncio.subprocess import DEVNULL, PIPE

from services.verifier.network.hosts import IPAddress

MAX_ANSWERS = 16
MAX_BYTES = 64 << 10
ENVIRONMENT = {"LC_ALL": "C", "RES_OPTIONS": "timeout:2 attempts:2", "PATH": "/usr/bin:/bin"}


class ResolveError(Exception):
    """The name has no address, or it could not be asked for; the message is one line."""


async def resolve(name: str) -> list[IPAddress]:
    """The addresses of a host name in normal form, in the system's order, each once. Raises ResolveError.

    The caller sets the deadline (`asyncio.timeout`); on cancellation the look-up is killed.
    """
    program = shutil.which("getent", path=ENVIRONMENT["PATH"])
    if program is None:
        raise ResolveError("getent is missing on this machine: names cannot be resolved")
    try:
        child = await asyncio.create_subprocess_exec(
            program, "ahosts", name, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, env=ENVIRONMENT
        )
    except OSError as error:
        raise ResolveError(f"getent cannot be started: {error.strerror}") from error
    assert child.stdout is not None  # noqa: S101 (asked for with PIPE)
    try:
        text = await child.stdout.read(MAX_BYTES)
    finally:
        if child.returncode is None:
            child.kill()
        await asyncio.shield(child.wait())
    found = parse(text.decode("ascii", "replace"))
    if not found:
        raise ResolveError("the name has no address")
    return found


def parse(text: str) -> list[IPAddress]:
    """The addresses of the lines `ADDRESS KIND [NAME]`, each once; what is no address is left out, and what is no whole line."""
    found: dict[IPAddress, None] = {}
    *whole, _ = text.split(
        "\n"
    )  # after the last line end: nothing, or half of what could read as another address
    for line in whole:
        words = line.split()
        try:
            found[ipaddress.ip_address(words[0])] = None
        except (IndexError, ValueError):
            continue
    return list(found)[:MAX_ANSWERS]
