"""Questions and controls. Invariant: questions read the projection; controls are events on the log, never writes to Redis."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from typing import Any

import msgspec

from schemas.ids import derive, event_id
from schemas.tasks import DomainPaused, DomainResumed, QuotaChanged, TaskCancelled, TaskSubmitted
from services.runtime import settings
from services.runtime.errors import BadInput, Unavailable, one_line
from services.runtime.producer import Outgoing, Producer
from services.runtime.reader import LogReader
from services.runtime.settings import Process
from services.scheduler.app import catalog_of
from services.scheduler.explain import explain
from services.scheduler.policies import Policies, policies_of
from services.scheduler.replay import replay
from services.scheduler.settings import redis_of
from services.scheduler.snapshot import SnapshotError, restore
from services.scheduler.state import State
from services.scheduler.store import Store
from services.scheduler.summary import summary

DONE, NO, WRONG_USE, OUTSIDE = 0, 1, 2, 3
SCAN_S = 60.0
"""Longest search of the log for a task's submission."""


def main(argv: list[str]) -> int:
    """Answer one question or send one control; exit status as the design says."""
    parser = argparse.ArgumentParser(prog="python -m services.scheduler")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, subject, help_text in (
        ("ps", "", "tasks by domain and state, leases, workers"),
        ("replay", "", "rebuild the state from the log and compare"),
        ("explain", "task", "why a task has its place and what it waits for"),
        ("requeue", "task", "submit an ended task again, under a new id"),
        ("cancel", "task", "stop working on a task"),
        ("pause", "domain", "dispatch nothing more of a domain"),
        ("resume", "domain", "dispatch a paused domain again"),
        ("quota", "domain", "limit a domain's leases; 0 lifts the limit"),
    ):
        command = commands.add_parser(name, help=help_text)
        command.add_argument("--json", action="store_true", help="one JSON document on standard output")
        if subject:
            command.add_argument("subject", metavar=subject.upper())
        if name == "quota":
            command.add_argument("nominal", type=int)
    arguments = parser.parse_args(argv)
    try:
        process = settings.process("scheduler-cli")
        return asyncio.run(_answer(arguments, process))
    except BadInput as error:
        sys.stderr.write(one_line(error) + "\n")
        return WRONG_USE
    except Unavailable as error:
        sys.stderr.write(one_line(error) + "\n")
        return OUTSIDE


async def _answer(arguments: argparse.Namespace, process: Process) -> int:
    policies = policies_of(catalog_of(process).cards, process.config)
    match arguments.command:
        case "ps":
            state = await _stored(process)
            _show(summary(state, policies, max(time.time(), state.meta.now)), as_json=arguments.json)
        case "explain":
            return await _explain(arguments, process, policies)
        case "replay":
            report = await replay(process.kafka, redis_of(process), process.prefix, policies)
            _show(msgspec.to_builtins(report), as_json=arguments.json)
            return DONE if report.equal else NO
        case "requeue":
            return await _requeue(arguments, process)
        case _:
            await _control(arguments, process, policies)
    return DONE


async def _explain(arguments: argparse.Namespace, process: Process, policies: Policies) -> int:
    state = await _stored(process)
    found = explain(state, policies, arguments.subject, max(time.time(), state.meta.now))
    if found is None:
        sys.stderr.write(f"no task {arguments.subject!r} is known; was it submitted to this installation?\n")
        return NO
    _show(found, as_json=arguments.json)
    return DONE


async def _control(arguments: argparse.Namespace, process: Process, policies: Policies) -> None:
    subject: str = arguments.subject
    if arguments.command != "cancel" and subject not in policies.domains:
        raise BadInput(f"unknown domain {subject!r}; `temper domains ls` lists the known ones")
    event: TaskCancelled | DomainPaused | DomainResumed | QuotaChanged
    match arguments.command:
        case "cancel":
            event = TaskCancelled(task_id=subject, reason="cancelled by the user")
        case "pause":
            event = DomainPaused(domain=subject, reason="paused by the user")
        case "resume":
            event = DomainResumed(domain=subject)
        case _:
            if arguments.nominal < 0:
                raise BadInput(
                    f"quota {arguments.nominal} is negative; give the leases at a time, or 0 for no limit"
                )
            event = QuotaChanged(domain=subject, nominal=arguments.nominal)
    key = subject
    if isinstance(event, TaskCancelled):  # the key of the task's submission, so that order is kept
        state = await _stored(process)
        record = state.live.get(subject) or state.ended.get(subject)
        key = record.domain if record is not None else subject
    await _send(process, Outgoing(topic="tasks", event=event, key=key))
    _show({"sent": event.type_name(), "subject": subject}, as_json=arguments.json)


async def _requeue(arguments: argparse.Namespace, process: Process) -> int:
    state = await _stored(process)
    subject: str = arguments.subject
    if subject in state.live:
        sys.stderr.write(f"task {subject} is {state.live[subject].state}, not ended; nothing to requeue\n")
        return NO
    ended = state.ended.get(subject)
    if ended is None:
        sys.stderr.write(f"no task {subject!r} is known; was it submitted to this installation?\n")
        return NO
    again = 1
    while (name := derive("requeue", subject, again)) in state.ended or name in state.live:
        again += 1
    submitted = await _submission(process, subject)
    task = msgspec.structs.replace(submitted.task, id=name)
    event = TaskSubmitted(task=task, priority=submitted.priority)
    out = Outgoing(topic="tasks", event=event, key=task.domain, id=event_id("TaskSubmitted", name))
    await _send(process, out)
    _show({"task": name, "requeued": subject, "was": ended.state}, as_json=arguments.json)
    return DONE


async def _submission(process: Process, task_id: str) -> TaskSubmitted:
    reader = LogReader(process.kafka, process.prefix, ["tasks"])
    await reader.start()
    try:
        async with asyncio.timeout(SCAN_S):
            while not await reader.caught_up():
                for record in await reader.poll(0.25, 2000):
                    if isinstance(record.event, TaskSubmitted) and record.event.task.id == task_id:
                        return record.event
    except TimeoutError as error:
        raise Unavailable(
            f"the log was searched for {SCAN_S:.0f} s without finding task {task_id}"
        ) from error
    finally:
        await reader.stop()
    raise Unavailable(f"the submission of task {task_id} is no longer in the log; submit it anew")


async def _send(process: Process, out: Outgoing) -> None:
    producer = Producer(process.kafka, process.prefix, process.worker)
    await producer.start()
    try:
        await producer.emit(out)
    finally:
        await producer.stop()


async def _stored(process: Process) -> State:
    store = Store(redis_of(process), process.prefix)
    try:
        fields = await store.load()
    finally:
        await store.close()
    if not fields:
        raise Unavailable("Redis holds no scheduler state for this installation; does the scheduler run?")
    try:
        return restore(fields)
    except SnapshotError as error:
        raise Unavailable(f"{error}; the running scheduler is of another version") from error


def _show(document: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
        return
    for line in lines(document):
        sys.stdout.write(line + "\n")


def lines(document: dict[str, Any], indent: str = "") -> list[str]:
    """A document as indented text, one fact a line."""
    found: list[str] = []
    for name, value in document.items():
        if isinstance(value, dict) and value:
            found += [f"{indent}{name}", *lines(value, indent + "  ")]
        elif isinstance(value, list | tuple) and value:
            found.append(f"{indent}{name}")
            for item in value:
                if isinstance(item, dict):
                    pairs = (f"{key}={_plain(part)}" for key, part in item.items())
                    found.append(indent + "  " + " ".join(pairs))
                else:
                    found.append(f"{indent}  {_plain(item)}")
        elif value not in ({}, [], ()):
            found.append(f"{indent}{name:<16} {_plain(value)}")
    return found


def _plain(value: object) -> str:
    if value is None or value == "":
        return "-"
    return f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
