"""Names of hosts, in the one form in which they are compared.

Invariant: two spellings of the same host have the same normal form, and what could be read as an address by one
program and as a name by another has none: it is refused.
"""

from __future__ import annotations

import ipaddress
import re

import idna

MAX_NAME = 253
LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
# The C library takes 127.1, 0x7f.0.0.1, 017700000001 and 2130706433 for addresses: whatever ends in such a label.
NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*")
PORT = re.compile(r"[1-9][0-9]{0,4}")
MAX_PORT = 65_535

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class HostError(ValueError):
    """A host or port that has no normal form; the message is one line."""


def normal(host: str) -> str:
    """Lower case, IDNA (UTS 46) applied, one trailing dot dropped; addresses in their usual form, IPv6 in brackets.

    Raises HostError: not a host name, or an address in an unusual notation (octal, hexadecimal, short, with a zone).
    """
    shown = repr(host[:80])
    if host.startswith("["):
        return _bracketed(host, shown)
    name = host.removesuffix(".")
    if not name.isascii():
        try:
            name = idna.encode(name, uts46=True, std3_rules=True).decode("ascii").removesuffix(".")
        except UnicodeError as error:
            raise HostError(f"{shown} is no host name: {' '.join(str(error).split())[:120]}") from error
    name = name.lower()
    labels = name.split(".")
    if len(name) > MAX_NAME or not all(LABEL.fullmatch(label) for label in labels):
        raise HostError(f"{shown} is no host name")
    if NUMERIC_LABEL.fullmatch(labels[-1]):
        try:
            return str(ipaddress.IPv4Address(name))
        except ValueError as error:
            raise HostError(
                f"{shown} is an address in an unusual notation: write it as four decimal numbers"
            ) from error
    return name


def _bracketed(host: str, shown: str) -> str:
    inner = host[1:-1]
    if not host.endswith("]") or "%" in inner:
        raise HostError(f"{shown} is no IPv6 address in brackets (zones are not allowed)")
    try:
        return f"[{ipaddress.IPv6Address(inner)}]"
    except ValueError as error:
        raise HostError(f"{shown} is no IPv6 address in brackets") from error


def address(host: str) -> IPAddress | None:
    """The address that a normal form is, or None when it is a name."""
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def port_number(text: str) -> int:
    """A port in plain decimal digits. Raises HostError."""
    if not PORT.fullmatch(text) or int(text) > MAX_PORT:
        raise HostError(f"{text[:20]!r} is no port: give a number from 1 to {MAX_PORT}")
    return int(text)


def split(authority: str, default: int | None = None) -> tuple[str, int]:
    """`HOST:PORT` as (normal host, port); the port may be left out when there is a `default`. Raises HostError."""
    if authority.startswith("["):
        host, bracket, rest = authority.partition("]")
        host += bracket
        if rest and not rest.startswith(":"):
            raise HostError(f"{authority[:80]!r} is not HOST:PORT")
        colon, port = rest[:1], rest[1:]
    else:
        host, colon, port = authority.partition(":")
    if not colon:
        if default is None:
            raise HostError(f"{authority[:80]!r} has no port: write HOST:PORT")
        return normal(host), default
    return normal(host), port_number(port)
