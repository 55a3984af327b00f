"""The way out of the jail, when a task asks for one: a list of allowed targets and the proxy that keeps to it.

`Allow.parse("allow:HOST:PORT,...")` is the list. `Proxy(listener, allow)` serves the jailed program on a socket that
listens inside its own network namespace; every outgoing connection is made by the verifier, which resolves the names.

What the list cannot say: a tunnel (CONNECT) is not looked into, so at an address that serves many names (a CDN) a
program can reach all of them. List only hosts for which that does not matter.
"""

from services.verifier.network.addresses import refuse_address, special
from services.verifier.network.allow import Allow, AllowError, network
from services.verifier.network.limits import ProxyLimits
from services.verifier.network.proxy import Log, Proxy, ProxyError

__all__ = [
    "Allow",
    "AllowError",
    "Log",
    "Proxy",
    "ProxyError",
    "ProxyLimits",
    "network",
    "refuse_address",
    "special",
]
