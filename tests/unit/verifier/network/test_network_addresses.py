"""Only the public internet passes the rule."""

from __future__ import annotations

import ipaddress
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.verifier.network.addresses import RULES4, RULES6, own, refuse_address, special

PUBLIC4 = [
    "1.1.1.1",
    "8.8.8.8",
    "93.184.216.34",
    "172.15.255.255",
    "172.32.0.0",
    "100.63.255.255",
    "100.128.0.0",
]
PUBLIC4 += [
    "11.0.0.0",
    "9.255.255.255",
    "192.167.255.255",
    "192.169.0.0",
    "223.255.255.255",
    "169.253.255.255",
]
PUBLIC6 = ["2606:4700::1111", "2a00:1450:4001::1", "2001:4860:4860::8888", "64:ff9b::808:808"]


@pytest.mark.parametrize("text", [*PUBLIC4, *PUBLIC6])
def test_public(text: str) -> None:
    assert special(ipaddress.ip_address(text)) == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0.0.0.0", "unspecified"), ("0.1.2.3", "unspecified"), ("127.0.0.1", "loopback"), ("127.255.255.255", "loopback"),
        ("10.0.0.0", "private"), ("10.255.255.255", "private"), ("172.16.0.0", "private"), ("172.31.255.255", "private"),
        ("192.168.0.0", "private"), ("192.168.255.255", "private"), ("169.254.169.254", "link-local"),
        ("100.64.0.0", "carrier NAT"), ("100.100.100.200", "carrier NAT"), ("100.127.255.255", "carrier NAT"),
        ("192.0.0.192", "reserved"), ("192.0.2.1", "reserved"), ("198.18.0.1", "reserved"), ("198.19.255.255", "reserved"),
        ("198.51.100.1", "reserved"), ("203.0.113.1", "reserved"), ("192.88.99.1", "reserved"),
        ("224.0.0.1", "multicast"), ("239.255.255.255", "multicast"), ("240.0.0.1", "reserved"),
        ("255.255.255.255", "reserved"), ("168.63.129.16", "cloud"),
        ("::", "unspecified"), ("::1", "loopback"), ("::127.0.0.1", "reserved"), ("::ffff:127.0.0.1", "IPv4-mapped"),
        ("::ffff:8.8.8.8", "IPv4-mapped"), ("::ffff:0:127.0.0.1", "reserved"), ("fe80::1", "link-local"),
        ("fe80::1%eth0", "zone"), ("2606:4700::1111%1", "zone"), ("febf::1", "link-local"), ("fec0::1", "private"),
        ("fc00::1", "private"), ("fd00:ec2::254", "private"), ("ff02::1", "multicast"), ("2001:db8::1", "reserved"),
        ("2001::1", "reserved"), ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "reserved"), ("2002:7f00:1::", "6to4"),
        ("2002:808:808::", "6to4"), ("64:ff9b::7f00:1", "loopback behind NAT64"), ("64:ff9b::a9fe:a9fe", "link-local"),
        ("64:ff9b::10.0.0.1", "private behind NAT64"), ("64:ff9b:1::808:808", "private"), ("100::1", "reserved"),
        ("3fff::1", "reserved"), ("5f00::1", "reserved"), ("4000::1", "reserved"), ("1::1", "reserved"),
        ("2a00:1450::5efe:192.168.0.1", "private behind ISATAP"), ("2a00:1450::200:5efe:127.0.0.1", "behind ISATAP"),
    ],
)  # fmt: skip
def test_refused(text: str, why: str) -> None:
    assert why in special(ipaddress.ip_address(text))


@pytest.mark.parametrize("network", [net for net, _ in (*RULES4, *RULES6)], ids=str)
def test_every_range_from_its_first_to_its_last(
    network: ipaddress.IPv4Network | ipaddress.IPv6Network,
) -> None:
    for ip in (network[0], network[-1], network[network.num_addresses // 2]):
        assert special(ip)


@given(st.ip_addresses())
def test_whatever_passes_is_global_by_the_standard_library_too(
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    if special(ip) == "" and ip not in ipaddress.ip_network(
        "64:ff9b::/96" if ip.version == 6 else "0.0.0.0/32"
    ):
        assert ip.is_global
        flags = (
            "is_private",
            "is_loopback",
            "is_link_local",
            "is_multicast",
            "is_reserved",
            "is_unspecified",
        )
        assert not any(getattr(ip, flag) for flag in flags)


@given(st.ip_addresses(v=4))
def test_an_embedded_address_is_never_judged_milder_than_itself(ip: ipaddress.IPv4Address) -> None:
    texts = [f"::ffff:{ip}", f"64:ff9b::{ip}", f"::{ip}", f"2a00::5efe:{ip}", f"2a00::200:5efe:{ip}"]
    six_to_four = ipaddress.IPv6Address(0x2002 << 112 | int(ip) << 80)
    if special(ip):
        assert all(special(each) for each in (*map(ipaddress.IPv6Address, texts), six_to_four))


def test_this_host_is_recognised_by_the_kernel() -> None:
    assert own(ipaddress.ip_address("127.0.0.1")) == "this host's own"
    assert own(ipaddress.ip_address("127.9.9.9")) == "this host's own"
    assert own(ipaddress.ip_address("1.1.1.1")) == ""
    assert own(ipaddress.ip_address("2606:4700::1111")) == ""


def test_an_interface_address_is_the_hosts_own() -> None:
    """The address that packets to the outside would leave from; connect on UDP sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("1.1.1.1", 53))
        except OSError:
            pytest.skip("no route to the outside on this machine")
        mine = probe.getsockname()[0]
    assert refuse_address(ipaddress.ip_address(mine))
    assert own(ipaddress.ip_address(mine)) == "this host's own"
