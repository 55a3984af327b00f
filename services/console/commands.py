"""What each command does. Invariant: thin: parse, call, print; with --json exactly one document goes to standard output."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import webbrowser
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from schemas.ids import event_id
from schemas.run import RunConfig
from schemas.tasks import TaskSubmitted
from schemas.topics import POOLS, TASKS
from services.console import connection, outside
from services.console.errors import DONE, NO, WRONG_USE, ConsoleError
from services.console.lines import submissions
from services.runtime import settings, telemetry
from services.runtime.catalog import Catalog
from services.runtime.producer import Outgoing, Producer

DOMAINS = ("domains",)


def run(arguments: argparse.Namespace, rest: list[str]) -> int:
    """`temper run`."""
    config = settings.resolve(rest)
    if arguments.dry_run:
        sys.stdout.write(msgspec.json.format(settings.to_json(config), indent=2).decode() + "\n")
        return DONE
    return _drive(config, plain=arguments.plain, train=True)


def up(arguments: argparse.Namespace, rest: list[str]) -> int:
    """`temper up`."""
    config = settings.resolve(rest)
    if config.name == RunConfig().name:
        config = msgspec.structs.replace(config, name="up")
    return _drive(config, plain=arguments.plain, train=False)


def _drive(config: RunConfig, *, plain: bool, train: bool) -> int:
    from services.console.run import Interrupted, Run, choose_folder

    config, folder = choose_folder(config)
    print(f"temper: {folder}", file=sys.stderr)
    telemetry.setup_traces("console")
    try:
        done = asyncio.run(Run(config, folder, plain=plain, train=train).execute())
    except Interrupted:
        again = "the same command goes on from here" if train else "its data stay"
        print(f"temper: stopped; {again} ({folder})", file=sys.stderr)
        return DONE if not train else 130
    finally:
        telemetry.shutdown()
    report_json = json.loads((done / "report.json").read_text())
    held = report_json["heldout"]
    print(
        f"held-out {held['before']} -> {held['after']} (greedy {held['before_greedy']} -> {held['after_greedy']}), "
        f"{report_json['steps']} steps, {report_json['wall_s']:.0f} s, lost {report_json['lost']}"
    )
    print(done / "report.html")
    return DONE


def submit(arguments: argparse.Namespace, _: list[str]) -> int:
    """`temper submit`."""
    if (arguments.file is None) == (arguments.domain is None):
        raise ConsoleError("give a file of tasks, or --domain and --count", WRONG_USE)
    link = connection.find()
    if arguments.domain is not None:
        if arguments.count < 1:
            raise ConsoleError(f"--count is {arguments.count}, it must be at least 1", WRONG_USE)
        paths = settings.load_json(Path(link.config), RunConfig).domains.paths if link.config else DOMAINS
        catalog = Catalog.load(paths, ("*",), ())
        drawn = catalog.sample(arguments.domain, split="train", seed=arguments.seed, count=arguments.count)
        # Through the wire's own rules, which building a struct in Python does not check.
        events = [
            msgspec.convert(
                {"task": msgspec.to_builtins(item.task), "priority": arguments.priority}, TaskSubmitted
            )
            for item in drawn
        ]
    else:
        events = list(submissions(arguments.file, arguments.priority))
    telemetry.setup_traces("console")
    asyncio.run(_emit(link, events))
    telemetry.shutdown()
    for event in events:
        print(event.task.id)
    return DONE


async def _emit(link: connection.Connection, events: list[TaskSubmitted]) -> None:
    producer = Producer(link.kafka, link.prefix, "console")
    await producer.start()
    try:
        await producer.emit(
            *(
                Outgoing(
                    topic=TASKS.name,
                    event=event,
                    key=event.task.domain,
                    id=event_id("TaskSubmitted", event.task.id),
                    traceparent=telemetry.submitted(event.task.id, event.task.domain),
                )
                for event in events
            )
        )
    finally:
        await producer.stop()


def ask_scheduler(arguments: argparse.Namespace, _: list[str]) -> int:
    """`temper ps` and `temper explain`."""
    words = [arguments.command, *([arguments.task] if arguments.command == "explain" else [])]
    words += ["--json"] if arguments.json else []
    return outside.run_service("scheduler", words, connection.find().environment())


def requeue(arguments: argparse.Namespace, _: list[str]) -> int:
    """`temper requeue`."""
    return outside.run_service("scheduler", ["requeue", arguments.task], connection.find().environment())


def steer(arguments: argparse.Namespace, _: list[str]) -> int:
    """`temper pause`, `temper resume` and `temper drain`."""
    words = [arguments.command, arguments.subject]
    return outside.run_service("scheduler", words, connection.find().environment())


def quota(arguments: argparse.Namespace, _: list[str]) -> int:
    """`temper quota`."""
    words = ["quota", arguments.domain, arguments.slots]
    for name in ("borrow", "lend"):
        value = getattr(arguments, name)
        words += [] if value is None else [f"--{name}={value}"]
    return outside.run_service("scheduler", words, connection.find().environment())


def dlq(arguments: argparse.Namespace, _: list[str]) -> int:
    """`temper dlq ls|show|replay`."""
    from services.console import deadletters

    link = connection.find()
    if arguments.action == "ls":
        rows = asyncio.run(deadletters.counts(link))
        for topic, count in rows.items():
            print(f"{topic}\t{count}")
        return DONE
    if arguments.topic is None:
        raise ConsoleError(f"temper dlq {arguments.action} needs the source topic, e.g. tasks", WRONG_USE)
    if arguments.action == "show":
        asyncio.run(deadletters.show(link, arguments.topic, arguments.offset))
    else:
        replayed = asyncio.run(deadletters.replay(link, arguments.topic, arguments.offset))
        print(f"{replayed} records sent to {arguments.topic} again")
    return DONE


def domains(arguments: argparse.Namespace, _: list[str]) -> int:
    """`temper domains ls|show|validate|sample`."""
    paths = tuple(arguments.paths or DOMAINS)
    if arguments.action == "validate":
        words = ["validate", *arguments.names, *(["--json"] if arguments.json else [])]
        for path in paths:
            words += ["--paths", path]
        return outside.run_service("verifier", words)
    catalog = Catalog.load(paths, tuple(arguments.names or ("*",)), key="")
    if arguments.action == "ls":
        if arguments.json:
            cards = sorted(catalog.cards.values(), key=lambda item: item.name)
            sys.stdout.write(msgspec.json.encode({"domains": cards}).decode() + "\n")
        else:
            for card in sorted(catalog.cards.values(), key=lambda item: (item.layer, item.name)):
                print(f"{card.name:<24} {card.layer:<13} {card.verifier.family:<9} {card.summary}")
        return DONE
    if not arguments.names:
        raise ConsoleError(f"temper domains {arguments.action} needs a domain", WRONG_USE)
    for name in arguments.names:
        card = catalog.card(name)
        if arguments.action == "show":
            print(msgspec.json.format(msgspec.json.encode(card), indent=2).decode())
            continue
        for item in catalog.sample(name, split="train", seed=arguments.seed, count=arguments.count):
            row = msgspec.to_builtins(item.task) | ({"gold": item.gold} if arguments.gold else {})
            print(json.dumps(row))
    return DONE


def _folder(name: str) -> Path:
    for folder in (Path(name), connection.RUNS / name):
        if (folder / "config.json").exists():
            return folder.resolve()
    raise ConsoleError(f"no run {name!r} here: runs lie in {connection.RUNS}/", WRONG_USE)


def replay(arguments: argparse.Namespace, _: list[str]) -> int:
    """`temper replay`."""
    words = ["replay", *(["--json"] if arguments.json else [])]
    return asyncio.run(_on_run(_folder(arguments.run), lambda link: _outside("scheduler", words, link)))


async def _outside(service: str, words: list[str], link: connection.Connection) -> int:
    return await asyncio.to_thread(outside.run_service, service, words, link.environment())


def report(arguments: argparse.Namespace, _: list[str]) -> int:
    """`temper report`."""
    from services.console.report import write_report
    from services.console.run import load_timeline

    folder = _folder(arguments.run)
    config = msgspec.json.decode((folder / "config.json").read_bytes(), type=RunConfig)

    async def write(link: connection.Connection) -> int:
        await write_report(config, folder, link, load_timeline(folder).wall_s)
        return DONE

    status = asyncio.run(_on_run(folder, write))
    print(folder / "report.html")
    if arguments.open and not webbrowser.open((folder / "report.html").as_uri()):
        return NO
    return status


async def _on_run(folder: Path, act: Callable[[connection.Connection], Awaitable[int]]) -> int:
    """Act on a run's installation: the live one, else its stored data on a stack started for the purpose."""
    from services.runtime.stack import Stack, StackError

    try:
        live = connection.find(folder.name, folder.parent)
    except ConsoleError:
        live = None  # not up: its data are in the folder
    if live is not None:
        return await act(live)
    try:
        stack = await asyncio.to_thread(Stack.start, folder / "stack")
    except StackError as error:
        raise ConsoleError(str(error)) from error
    try:
        prefix = "" if stack.kafka_server is not None else f"{folder.name}."
        return await act(
            connection.Connection(
                kafka=stack.kafka,
                redis=stack.redis,
                prefix=prefix,
                run_dir=str(folder),
                config=str(folder / "config.json"),
            )
        )
    finally:
        await asyncio.to_thread(stack.stop)


def topics(arguments: argparse.Namespace, _: list[str]) -> int:
    """`temper topics create|asyncapi`."""
    if arguments.action == "asyncapi":
        from services.runtime.broker import document

        sys.stdout.write(document().decode() + "\n")
        return DONE
    from services.runtime.topics import create

    kafka = os.environ.get("TEMPER_KAFKA") or connection.find().kafka
    if arguments.shards < 1:
        raise ConsoleError(f"--shards is {arguments.shards}, it must be at least 1", WRONG_USE)
    asyncio.run(create(kafka, os.environ.get("TEMPER_PREFIX", ""), POOLS, shards=arguments.shards))
    return DONE


def base(_: argparse.Namespace, rest: list[str]) -> int:
    """`temper base build`."""
    return outside.run_service("trainer.base", rest)


def bench(arguments: argparse.Namespace, rest: list[str]) -> int:
    """`temper bench`."""
    from services.console import bench as benches

    return benches.run(arguments.name, rest, as_json=arguments.json)


def passed_on(_: argparse.Namespace, __: list[str]) -> int:
    """Commands that another service parses; they never come here with arguments."""
    raise ConsoleError("this command is answered by its service", WRONG_USE)
