"""Pipes never make the supervisor wait or grow."""

from __future__ import annotations

import os

from services.verifier.jail.streams import Inflow, Outflow


def test_inflow_keeps_the_head_and_counts_the_rest() -> None:
    flow = Inflow(5)
    assert flow.take()  # nothing there yet: no wait
    os.write(flow.far, b"12345678")
    flow.close_far()
    flow.drain()
    assert (flow.content, flow.total, flow.truncated) == (b"12345", 8, True)
    assert not flow.take()
    flow.close()
    flow.close()


def test_inflow_exactly_at_its_cap_is_whole() -> None:
    flow = Inflow(3)
    os.write(flow.far, b"123")
    flow.drain()
    assert (flow.content, flow.truncated) == (b"123", False)
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
