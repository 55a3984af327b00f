"""The list means what it says: one spelling a host, no patterns, and never "everything"."""

from __future__ import annotations

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from services.verifier.network import Allow, AllowError, network
from services.verifier.network.hosts import HostError, normal


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("allow:example.com:443", (("example.com", 443),)),
        ("allow:Example.COM.:443", (("example.com", 443),)),
        ("allow:a.example:80, b.example:8080", (("a.example", 80), ("b.example", 8080))),
        ("allow:a.example:80,A.EXAMPLE.:80", (("a.example", 80),)),
        ("allow:bücher.example:443", (("xn--bcher-kva.example", 443),)),
        ("allow:BÜCHER.example:443", (("xn--bcher-kva.example", 443),)),
        (
            "allow:\N{FULLWIDTH LATIN SMALL LETTER E}xample\N{IDEOGRAPHIC FULL STOP}com:443",
            (("example.com", 443),),
        ),
        ("allow:93.184.216.34:80", (("93.184.216.34", 80),)),
        ("allow:[2606:2800:220:1::1]:443", (("[2606:2800:220:1::1]", 443),)),
        ("allow:[2606:2800:0220:0001:0:0:0:1]:443", (("[2606:2800:220:1::1]", 443),)),
        ("allow:localhost:8000", (("localhost", 8000),)),
    ],
)
def test_lists(text: str, entries: tuple[tuple[str, int], ...]) -> None:
    allow = Allow.parse(text)
    assert allow.entries == entries
    assert Allow.parse(str(allow)) == allow
    assert network(text) == allow


@pytest.mark.parametrize(
    "text",
    [
        *("", "allow", "allow:", "allow: ", "allow:,", "all", "host", "deny:a:1", "ALLOW:a.example:1", "None"),
        *("allow:a.example", "allow:a.example:", "allow::80", "allow:a.example:80,", "allow:a.example:80:90"),
        *("allow:a.example:0", "allow:a.example:65536", "allow:a.example:-1", "allow:a.example:+80"),
        *("allow:a.example:0x50", "allow:a.example:080", "allow:a.example:\N{FULLWIDTH DIGIT EIGHT}0", "allow:a.example:80-90"),
        *("allow:*:80", "allow:*.example.com:80", "allow:a.example:*", "allow:.example.com:80"),
        *("allow:a..example:80", "allow:-a.example:80", "allow:a.example..:80", "allow:a b.example:80"),
        *("allow:user@a.example:80", "allow:http://a.example:80", "allow:a.example/x:80", "allow:a.example\n:80"),
        *("allow:127.1:80", "allow:0x7f.0.0.1:80", "allow:0177.0.0.1:80", "allow:2130706433:80"),
        *("allow:127.0.0.01:80", "allow:1.2.3:80", "allow:1.2.3.4.5:80", "allow:256.1.1.1:80"),
        *("allow:a.0x7f:80", "allow:1.2.3.0x:80", "allow:\N{FULLWIDTH DIGIT ONE}27.1:80"),
        *("allow:[::1:80", "allow:[fe80::1%eth0]:80", "allow:[fe80::1%25eth0]:80", "allow:[::1]80", "allow:2606::1:80"),
        *("allow:[1.2.3.4]:80", "allow:" + "a" * 64 + ".example:80", "allow:" + "a." * 127 + "example:80"),
        "allow:" + ",".join(f"h{n}.example:80" for n in range(65)),
    ],
)  # fmt: skip
def test_what_is_no_list_is_one_line(text: str) -> None:
    with pytest.raises(AllowError) as caught:
        Allow.parse(text)
    assert str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_network_setting() -> None:
    assert network(None) is None
    assert network("none") is None
    for value in (True, False, 0, 1, "", "host", "on", [], ["a.example:80"], {"allow": "x"}, "allow:"):
        with pytest.raises(AllowError, match="HOST:PORT"):
            network(value)


def test_an_empty_list_cannot_be_made() -> None:
    with pytest.raises(AllowError, match="without a list"):
        Allow(())
    with pytest.raises(AllowError, match="no host name"):
        Allow((("*", 80),))


def test_permits_is_equality() -> None:
    allow = Allow.parse("allow:a.example:80,[2606::1]:443")
    assert allow.permits("a.example", 80)
    assert allow.permits("[2606::1]", 443)
    for host, port in [
        ("a.example", 81),
        ("b.a.example", 80),
        ("a.exampl", 80),
        ("example", 80),
        ("A.EXAMPLE", 80),
    ]:
        assert not allow.permits(host, port)


@given(st.text(max_size=40))
def test_normal_form_is_stable(text: str) -> None:
    """Any text is refused in one line or has a normal form that is its own, in plain characters."""
    try:
        once = normal(text)
    except HostError as error:
        event("refused")
        if "\n" in str(error):
            pytest.fail(f"more than one line: {error}")
        return
    assert normal(once) == once
    assert once.isascii()
    assert once == once.lower()
    assert not set(once) & set(" \t\r\n@/\\%?#*,")
