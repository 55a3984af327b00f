"""Pipes never make the supervisor wait or grow, and say what they left out."""

from __future__ import annotations

import os
import re

import pytest

from services.verifier.jail.streams import Inflow, Outflow


def fill(flow: Inflow, data: bytes) -> None:
    for at in range(0, len(data), 50_000):
        os.write(flow.far, data[at : at + 50_000])
        assert flow.take()


def test_inflow_keeps_the_head_and_counts_the_rest() -> None:
    flow = Inflow(5)
    assert flow.take()  # nothing there yet: no wait
    os.write(flow.far, b"12345678")
    flow.close_far()
    flow.drain()
    assert (flow.content, flow.total, flow.truncated, flow.dropped) == (b"12345", 8, True, 3)
    assert not flow.take()
    flow.close()
    flow.close()


@pytest.mark.parametrize("tail", [False, True])
def test_inflow_exactly_at_its_cap_is_whole(*, tail: bool) -> None:
    flow = Inflow(3000, tail=tail)
    data = os.urandom(3000)
    fill(flow, data)
    assert (flow.content, flow.truncated, flow.dropped) == (data, False, 0)
    flow.close()


@pytest.mark.parametrize("size", [1001, 1020, 1499, 1500, 1501, 2000, 3001, 70_000, 1_000_003])
def test_head_and_tail_are_kept_with_a_line_between_them(size: int) -> None:
    flow = Inflow(1000, tail=True)
    data = b"".join(b"%07d\n" % n for n in range(size // 8 + 1))[:size]
    fill(flow, data)
    head, said, tail = re.split(rb"\n\[\.\.\. (\d+) bytes left out \.\.\.\]\n", flow.content)
    assert len(flow.content) <= 1000
    assert len(head) == 500
    assert data.startswith(head)
    assert data.endswith(tail)
    assert len(tail) > 450
    assert int(said) == flow.dropped == size - len(head) - len(tail)
    assert len(flow._head) + len(flow._tail) <= 2000 + (1 << 16)
    flow.close()


def test_without_a_tail_nothing_is_added() -> None:
    flow = Inflow(1000)
    data = os.urandom(9000)
    fill(flow, data)
    assert (flow.content, flow.dropped) == (data[:1000], 8000)
    flow.close()


def test_outflow_larger_than_a_pipe_is_given_in_parts() -> None:
    data = bytes(range(256)) * 4096
    flow = Outflow(data)
    got = b""
    while flow.fd >= 0:
        got += os.read(flow.far, 50_000)
        flow.give()
    while part := os.read(flow.far, 1 << 20):
        got += part
    assert got == data
    flow.close()


def test_outflow_to_a_reader_that_left() -> None:
    flow = Outflow(bytes(1 << 20))
    flow.close_far()
    assert not flow.give()
    assert flow.fd == -1
