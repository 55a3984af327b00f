"""Questions and controls. Invariant: questions read the projection; controls are events on the log, never writes to Redis."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from typing import Any

import msgspec

from schemas.ids import derive, event_id
from schemas.tasks import QuotaChanged, TaskCancelled, TaskSubmitted
from services.runtime import settings
from services.runtime.errors import BadInput, Unavailable, one_line
from services.runtime.producer import Outgoing, Producer
from services.runtime.reader import LogReader
from services.runtime.settings import Process
from services.scheduler.app import catalog_of, shard_policies
from services.scheduler.controls import Control, refusal
from services.scheduler.explain import explain
from services.scheduler.policies import Policies
from services.scheduler.replay import replay
from services.scheduler.settings import redis_of
from services.scheduler.steering import control_of
from services.scheduler.summary import summary
from services.scheduler.views import holding, joined, stored

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
        ("resume", "domain", "dispatch a paused domain or a drained pool again"),
        ("drain", "pool", "give a pool no more leases; or pause a domain and take back what runs"),
        ("quota", "domain", "what a domain owns of the slots; 0 lifts the limit"),
    ):
        command = commands.add_parser(name, help=help_text)
        command.add_argument("--json", action="store_true", help="one JSON document on standard output")
        if subject:
            command.add_argument("subject", metavar=subject.upper())
        if name == "quota":
            command.add_argument("nominal", metavar="SLOTS")
            command.add_argument("--borrow", metavar="SLOTS", help="what it may use of others in its cohort")
            command.add_argument("--lend", metavar="SLOTS", help="what others in its cohort may use of it")
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
    policies = shard_policies(catalog_of(process), process)
    match arguments.command:
        case "ps":
            states = await stored(process, policies)
            documents = [summary(state, own, max(time.time(), state.meta.now)) for own, state in states]
            _show(joined(documents, states), as_json=arguments.json)
        case "explain":
            return await _explain(arguments, process, policies)
        case "replay":
            report = await replay(process.kafka, redis_of(process), process.prefix, policies)
            _show(msgspec.to_builtins(report), as_json=arguments.json)
            return DONE if report.equal else NO
        case "requeue":
            return await _requeue(arguments, process, policies)
        case _:
            await _control(arguments, process, policies)
    return DONE


async def _explain(arguments: argparse.Namespace, process: Process, policies: Policies) -> int:
    own, state = holding(await stored(process, policies), arguments.subject)
    found = explain(state, own, arguments.subject, max(time.time(), state.meta.now))
    if found is None:
        sys.stderr.write(_unknown(arguments.subject, policies))
        return NO
    _show(found, as_json=arguments.json)
    return DONE


async def _control(arguments: argparse.Namespace, process: Process, policies: Policies) -> None:
    subject: str = arguments.subject
    event: TaskCancelled | Control
    key = subject
    if arguments.command == "cancel":
        event = TaskCancelled(task_id=subject, reason="cancelled by the user")
        # the key of the task's submission, so that order is kept
        _, state = holding(await stored(process, policies), subject)
        record = state.live.get(subject) or state.ended.get(subject) or state.pending.get(subject)
        key = record.domain if record is not None else subject
    else:
        quota = {name: getattr(arguments, name, None) for name in ("borrow", "lend")}
        nominal = getattr(arguments, "nominal", "")
        event = control_of(arguments.command, subject, policies, nominal=nominal, **quota)
        if isinstance(event, QuotaChanged):  # the fold decides; what it would refuse now need not be sent
            for own, state in await stored(process, policies):
                if own.owns(subject) and (line := refusal(state, own, event)[1]):
                    raise BadInput(line)
    await _send(process, Outgoing(topic="tasks", event=event, key=key))
    _show({"sent": event.type_name(), "subject": subject}, as_json=arguments.json)


async def _requeue(arguments: argparse.Namespace, process: Process, policies: Policies) -> int:
    subject: str = arguments.subject
    _, state = holding(await stored(process, policies), subject)
    if subject in state.live:
        sys.stderr.write(f"task {subject} is {state.live[subject].state}, not ended; nothing to requeue\n")
        return NO
    ended = state.ended.get(subject)
    if ended is None:
        sys.stderr.write(_unknown(subject, policies))
        return NO
    again = 1
    while (name := derive("requeue", subject, again)) in state.ended or name in state.live:
        again += 1
    submitted = await _submission(process, subject)
    task = msgspec.structs.replace(submitted.task, id=name)
    event = TaskSubmitted(task=task, priority=submitted.priority, again=subject)
    out = Outgoing(topic="tasks", event=event, key=task.domain, id=event_id("TaskSubmitted", name))
    await _send(process, out)
    _show({"task": name, "requeued": subject, "was": ended.state}, as_json=arguments.json)
    return DONE


def _unknown(task_id: str, policies: Policies) -> str:
    days = policies.ended_kept_s / 86_400.0
    return (
        f"no task {task_id!r} is known: it was not submitted to this installation, or it has ended and is forgotten "
        f"(after {days:g} days, or {policies.ended_kept} ended tasks); submit it anew\n"
    )


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
