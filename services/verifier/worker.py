"""One slot's process: takes a request, judges it, answers. Invariant: it ends when its pool does, and takes its jail along.

The pool may kill it at any time; nothing is kept here that another worker could not do again.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import BinaryIO

import msgspec

from services.verifier import engine
from services.verifier.frames import HEAD, Ready, Reply, Request, encode, size
from services.verifier.jail import Host, Jail, JailUnavailable, Job, Outcome, Slot, probe


class Watched:
    """A jail that counts its runs and remembers whether one failed by our fault."""

    def __init__(self, jail: Jail) -> None:
        self._jail = jail
        self.runs, self.cpu_s, self.wall_s, self.failed = 0, 0.0, 0.0, False

    def run(self, job: Job) -> Outcome:
        """As the jail within."""
        outcome = self._jail.run(job)
        self.runs += 1
        self.cpu_s += outcome.cpu_s
        self.wall_s += outcome.wall_s
        self.failed = self.failed or outcome.cause == "infra"
        return outcome


def serve(source: BinaryIO, sink: BinaryIO, name: str, root: Path, host: Host) -> None:
    """Answer requests until the source ends. A jail that failed is rebuilt before the next request.

    Raises:
        JailUnavailable: the slot cannot be made (again).
    """
    slot = Slot(name, root, host)
    decoder = msgspec.msgpack.Decoder(Request)
    try:
        sink.write(encode(Ready(isolation=host.isolation)))
        while (head := source.read(HEAD)) and len(head) == HEAD:
            request = decoder.decode(source.read(size(head)))
            jail = Watched(slot)
            verdict = engine.judge(request.task, request.card, request.submission, jail, request.answer_limit)
            if jail.failed:
                slot.close()
                slot = Slot(name, root, host)
            sink.write(
                encode(
                    Reply(
                        verdict=verdict, jail_cpu_s=jail.cpu_s, jail_wall_s=jail.wall_s, jail_runs=jail.runs
                    )
                )
            )
    finally:
        slot.close()


def main(argv: list[str]) -> int:
    """`NAME ROOT`: the slot's name and the folder of slots."""
    name, root = argv
    # Descriptor 1 becomes standard error, so that nothing printed by accident can look like a frame.
    with os.fdopen(os.dup(1), "wb", buffering=0) as sink, os.fdopen(os.dup(0), "rb") as source:
        os.dup2(2, 1)
        try:
            serve(source, sink, name, Path(root), probe())
        except JailUnavailable as error:
            sink.write(encode(Ready(error=" ".join(str(error).split()))))
            return 3
        except BrokenPipeError:
            return 0  # the pool is gone
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
