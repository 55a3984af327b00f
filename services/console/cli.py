"""Command-line parsing. Invariant: wrong use ends with status 2 and one line; imports stay with the command that needs them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from services.console.errors import OUTSIDE, WRONG_USE, ConsoleError
from services.runtime.errors import BadInput, Unavailable, one_line

Command = Callable[[argparse.Namespace, list[str]], int]
PASSED_ON = {"verify": ("verifier", ["verify"]), "sandbox": ("verifier", ["sandbox"])}
"""Commands whose arguments another service parses as they are."""


def parser() -> tuple[argparse.ArgumentParser, dict[str, Command]]:
    """The parser and, per command, what runs it."""
    from services.console import commands

    top = argparse.ArgumentParser(
        prog="temper", description="Reinforcement-learning post-training over a Kafka log."
    )
    sub = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    table: dict[str, Command] = {}

    def command(name: str, help_text: str, run: Command, usage: str | None = None) -> argparse.ArgumentParser:
        table[name] = run
        return sub.add_parser(name, help=help_text, description=help_text, usage=usage, allow_abbrev=False)

    keys = "[@FILE.toml ...] [--KEY.SUB VALUE ...]"
    run = command(
        "run",
        "one training run, from start to report",
        commands.run,
        f"temper run {keys} [--dry-run] [--plain]",
    )
    run.add_argument("--dry-run", action="store_true", help="print the resolved configuration and stop")
    run.add_argument("--plain", action="store_true", help="plain lines instead of the live view")
    up = command(
        "up", "the local stack with all services, until Ctrl-C", commands.up, f"temper up {keys} [--plain]"
    )
    up.add_argument("--plain", action="store_true", help="plain lines instead of the live view")

    submit = command("submit", "put tasks on the `tasks` topic", commands.submit)
    lines = 'JSON Lines of tasks, or of {"task": ..., "priority": ...}; - is standard input'
    submit.add_argument("file", nargs="?", type=Path, help=lines)
    submit.add_argument("--domain", help="draw tasks from a domain instead")
    submit.add_argument("--count", type=int, default=1)
    submit.add_argument("--seed", type=int, default=0)
    submit.add_argument("--priority", type=int, default=0, help="-100 to 100, higher goes first")

    ps = command("ps", "tasks by domain and state, leases, workers", commands.ask_scheduler)
    explain = command("explain", "why a task has its place and what it waits for", commands.ask_scheduler)
    explain.add_argument("task")
    _controls(command)

    dlq = command("dlq", "records that could not be decoded", commands.dlq)
    dlq.add_argument("action", choices=("ls", "show", "replay"))
    dlq.add_argument("topic", nargs="?", help="source topic, e.g. tasks")
    dlq.add_argument("offset", nargs="?", type=int)

    domains = command("domains", "the domains: ls, show, validate, sample", commands.domains)
    domains.add_argument("action", choices=("ls", "show", "validate", "sample"))
    domains.add_argument("names", nargs="*", metavar="DOMAIN")
    domains.add_argument(
        "--paths", action="append", metavar="FOLDER", help="folders of cards (default: domains)"
    )
    domains.add_argument("--count", type=int, default=1)
    domains.add_argument("--seed", type=int, default=0)
    domains.add_argument("--gold", action="store_true", help="add the gold answer")
    domains.add_argument("--json", action="store_true")

    replay = command("replay", "rebuild a run's state from its log and compare", commands.replay)
    replay.add_argument("run", help="name of a run, or its folder")
    report = command("report", "write a run's report again from its log", commands.report)
    report.add_argument("run", help="name of a run, or its folder")
    report.add_argument("--open", action="store_true", help="open it in the browser")
    topics = command("topics", "make the topics, or print their AsyncAPI document", commands.topics)
    topics.add_argument("action", choices=("create", "asyncapi"))
    topics.add_argument("--shards", type=int, default=1, help="as in scheduler.shards (1)")
    base = command(
        "base", "build the tiny base model", commands.base, "temper base build [--out FOLDER] [--seed N]"
    )
    base.add_argument("action", choices=("build",))
    bench = command(
        "bench",
        "measure a service: verifier, scheduler, pipeline",
        commands.bench,
        "temper bench NAME [--json] [...]",
    )
    bench.add_argument("name", help="which benchmark; its own options follow")
    for item in (ps, explain, replay, bench):
        item.add_argument("--json", action="store_true", help="one JSON document on standard output")
    for name, text in (
        ("verify", "one verdict, as the service gives it"),
        ("sandbox", "run a command in the jail"),
    ):
        command(name, text, commands.passed_on)
    return top, table


def _controls(command: Callable[..., argparse.ArgumentParser]) -> None:
    """What steers tasks, domains and pools."""
    from services.console import commands

    command("requeue", "give an ended task another life", commands.requeue).add_argument("task")
    for name, text in (
        ("pause", "dispatch nothing more of a domain"),
        ("resume", "dispatch a paused domain or a drained pool again"),
        ("drain", "give a pool no more leases; or pause a domain and take back what runs"),
    ):
        command(name, text, commands.steer).add_argument("subject", metavar="NAME")
    quota = command("quota", "what a domain owns of the slots; 0 lifts the limit", commands.quota)
    quota.add_argument("domain")
    quota.add_argument("slots")
    quota.add_argument("--borrow", metavar="SLOTS", help="what it may use of others in its cohort")
    quota.add_argument("--lend", metavar="SLOTS", help="what others in its cohort may use of it")


def run_command(argv: list[str]) -> int:
    """Parse and run; every expected failure is one line on standard error."""
    if argv and argv[0] in PASSED_ON:
        from services.console.outside import run_service

        service, prefix = PASSED_ON[argv[0]]
        return run_service(service, [*prefix, *argv[1:]])
    top, table = parser()
    arguments, rest = top.parse_known_args(argv)
    if rest and arguments.command not in {"run", "up", "base", "bench"}:
        top.error(f"unknown argument {rest[0]!r}")
    try:
        return table[arguments.command](arguments, rest)
    except ConsoleError as error:
        print(f"temper: {error}", file=sys.stderr)
        return error.status
    except BrokenPipeError:
        raise  # whether nobody reads is seen to by whoever called
    except (BadInput, ValueError, OSError, msgspec.MsgspecError) as error:
        # Settings, cards and files say themselves what is wrong and where.
        print(f"temper: {one_line(error)}", file=sys.stderr)
        return WRONG_USE
    except Unavailable as error:
        print(f"temper: {one_line(error)}", file=sys.stderr)
        return OUTSIDE
    except KeyboardInterrupt:
        print("temper: interrupted", file=sys.stderr)
        return 130
