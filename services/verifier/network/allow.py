"""The list of targets that a job may reach.

Invariant: an `Allow` is never empty and holds normal forms only, so that being on the list is equality and nothing
else: no patterns, no suffixes, no ranges of ports.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Self

from services.verifier.network import hosts
from services.verifier.network.addresses import special

PREFIX = "allow:"
MAX_ENTRIES = 64
HOW = "write 'none' or allow:HOST:PORT[,HOST:PORT...]"


class AllowError(ValueError):
    """A network setting that cannot be used; the message is one line."""


@dataclass(frozen=True, slots=True)
class Allow:
    """The allowed (host, port) pairs, hosts in normal form (`hosts.normal`), in the order given."""

    entries: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        if not self.entries:
            raise AllowError(f"network without a list of targets: {HOW}")
        if len(self.entries) > MAX_ENTRIES:
            raise AllowError(f"{len(self.entries)} network targets: at most {MAX_ENTRIES} are taken")
        try:
            tidy = [(hosts.normal(host), hosts.port_number(str(port))) for host, port in self.entries]
        except hosts.HostError as error:
            raise AllowError(f"network target: {error}") from error
        object.__setattr__(self, "entries", tuple(dict.fromkeys(tidy)))

    @classmethod
    def parse(cls, text: str) -> Self:
        """The list of `allow:HOST:PORT[,HOST:PORT...]`; IPv6 addresses in brackets. Raises AllowError."""
        if not text.startswith(PREFIX):
            raise AllowError(f"network {text[:80]!r}: {HOW}")
        body = text.removeprefix(PREFIX)
        if not body.strip():
            raise AllowError(f"network {text[:80]!r} has no list of targets: {HOW}")
        try:
            return cls(tuple(hosts.split(item.strip()) for item in body.split(",")))
        except hosts.HostError as error:
            raise AllowError(f"network {text[:80]!r}: {error}; {HOW}") from error

    def permits(self, host: str, port: int) -> bool:
        """Whether the target, its host in normal form, is on the list."""
        return (host, port) in self.entries

    def __str__(self) -> str:
        """As `parse` takes it."""
        return PREFIX + ",".join(f"{host}:{port}" for host, port in self.entries)


def network(value: object) -> Allow | None:
    """The network setting of a card or of the command line: None for "none". Raises AllowError.

    An address that is never connected to, whatever the list says (addresses.py), is refused here rather than at every try.
    Nothing else means "off", and nothing means "all": a card that asks for network must list its targets.
    """
    if value is None or value == "none":
        return None
    if not isinstance(value, str):
        raise AllowError(f"network {value!r:.80} has no list of targets: {HOW}")
    allow = Allow.parse(value)
    for host, port in allow.entries:
        why = _never(host)
        if why:
            raise AllowError(f"network target {host}:{port} can never be reached: its address is {why}")
    return allow


def _never(host: str) -> str:
    """Why an address is never connected to; "" for one that may be, and for a name, which is looked up at each connection."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return ""
    return special(address)
