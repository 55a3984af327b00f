"""Which addresses are refused whatever the list says.

Invariant: only addresses of the public internet pass. Anything that could mean this host, its neighbours, its cloud's
metadata service or a tunnel to one of them is refused, in every notation that carries such an address inside another.
Sources: the IANA special-purpose address registries for IPv4 and IPv6 (RFC 6890 and its updates).
"""

from __future__ import annotations

import errno
import ipaddress
import socket

from services.verifier.network.hosts import IPAddress

_V4 = {
    "0.0.0.0/8": "unspecified",
    "10.0.0.0/8": "private",
    "100.64.0.0/10": "shared (carrier NAT)",
    "127.0.0.0/8": "loopback",
    "169.254.0.0/16": "link-local",
    "172.16.0.0/12": "private",
    "192.0.0.0/24": "reserved",
    "192.0.2.0/24": "reserved",
    "192.88.99.0/24": "reserved",
    "192.168.0.0/16": "private",
    "198.18.0.0/15": "reserved",
    "198.51.100.0/24": "reserved",
    "203.0.113.0/24": "reserved",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "reserved",
    "168.63.129.16/32": "a cloud's own service",  # looks public, answers on the host's link
}
_V6 = {
    "::/128": "unspecified",
    "::1/128": "loopback",
    "::/96": "reserved",  # IPv4-compatible
    "64:ff9b:1::/48": "private",  # local NAT64
    "100::/64": "reserved",
    "100:0:0:1::/64": "reserved",
    "2001::/23": "reserved",  # Teredo, ORCHID, benchmarking and other protocol assignments
    "2001:db8::/32": "reserved",
    "2002::/16": "a tunnel (6to4)",
    "3fff::/20": "reserved",
    "5f00::/16": "reserved",
    "fc00::/7": "private",
    "fe80::/10": "link-local",
    "fec0::/10": "private",
    "ff00::/8": "multicast",
}
RULES4 = [(ipaddress.IPv4Network(net), why) for net, why in _V4.items()]
RULES6 = [(ipaddress.IPv6Network(net), why) for net, why in _V6.items()]
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
PUBLIC6 = ipaddress.IPv6Network("2000::/3")
LOW32 = (1 << 32) - 1
ISATAP = (0x00005EFE, 0x02005EFE)  # first half of an interface id; the second half is an IPv4 address


def special(ip: IPAddress) -> str:
    """Why the address is refused, or "" when it is one of the public internet. Pure."""
    if isinstance(ip, ipaddress.IPv4Address):
        why = next((why for net, why in RULES4 if ip in net), "")
        return why or ("" if ip.is_global else "reserved")
    if ip.scope_id is not None:
        return "an address with a zone"
    if ip.ipv4_mapped is not None:
        return "IPv4-mapped"
    if ip in NAT64:
        inner = special(ipaddress.IPv4Address(int(ip) & LOW32))
        return f"{inner} behind NAT64" if inner else ""
    why = next((why for net, why in RULES6 if ip in net), "")
    if why:
        return why
    if ip not in PUBLIC6 or not ip.is_global:
        return "reserved"
    if int(ip) >> 32 & LOW32 in ISATAP:
        inner = special(ipaddress.IPv4Address(int(ip) & LOW32))
        return f"{inner} behind ISATAP" if inner else ""
    return ""


def own(ip: IPAddress) -> str:
    """Why the address counts as this host's, or "". The kernel lets a socket be bound to such addresses only."""
    family = socket.AF_INET if isinstance(ip, ipaddress.IPv4Address) else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(ip), 0))
    except OSError as error:
        # No IPv6 on this machine: then none of its addresses is an IPv6 one.
        foreign = error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
        return "" if foreign else f"not to be told from this host's own ({error.strerror})"
    return "this host's own"


def refuse_address(ip: IPAddress) -> str:
    """The rule of the proxy: why `ip` is refused, or "" when it may be connected to."""
    return special(ip) or own(ip)
