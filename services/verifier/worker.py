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
from services.verifier.bounds import MEMORY_STATUS, Bounds
from services.verifier.frames import HEAD, Ready, Reply, Request, encode, size
from services.verifier.jail import Host, JailUnavailable, Slot, probe
from services.verifier.steps import Stepper
from services.verifier.watched import Watched

PAGE = os.sysconf("SC_PAGE_SIZE")


def serve(source: BinaryIO, sink: BinaryIO, name: str, root: Path, host: Host, bounds: Bounds) -> None:
    """Answer requests until the source ends. A jail that failed is rebuilt before the next request.

    A check beyond `bounds` ends the process, by SIGPROF or with MEMORY_STATUS.

    Raises:
        JailUnavailable: the slot cannot be made (again).
    """
    slot = Slot(name, root, host)
    decoder, stepper = msgspec.msgpack.Decoder(Request), Stepper(bounds)
    try:
        sink.write(encode(Ready(isolation=host.isolation)))
        while (head := source.read(HEAD)) and len(head) == HEAD:
            request = decoder.decode(source.read(size(head)))
            jail = Watched(slot, bounds)
            with bounds.armed():
                reply = _reply(request, jail, stepper)
            if jail.failed:
                slot.close()
                slot = Slot(name, root, host)
            reply = msgspec.structs.replace(
                reply,
                jail_cpu_s=jail.cpu_s,
                jail_wall_s=jail.wall_s,
                jail_runs=jail.runs,
                settled=jail.settled,
                memory_bytes=resident(),
            )
            sink.write(encode(reply))
    finally:
        slot.close()


def _reply(request: Request, jail: Watched, stepper: Stepper) -> Reply:
    """The verdict or the step that a request asks for. Raises MemoryError."""
    if request.resume is not None:
        return stepper.step(request, request.resume, jail)
    stepper.forget()
    return Reply(
        verdict=engine.judge(request.task, request.card, request.submission, jail, request.answer_limit)
    )


def resident() -> int:
    """Bytes of memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def main(argv: list[str]) -> int:
    """`NAME ROOT CPU_S MEMORY_BYTES`: the slot's name, the folder of slots, the bounds of checks."""
    name, root, cpu_s, memory_bytes = argv
    bounds = Bounds(float(cpu_s), int(memory_bytes))
    # Descriptor 1 becomes standard error, so that nothing printed by accident can look like a frame.
    with os.fdopen(os.dup(1), "wb", buffering=0) as sink, os.fdopen(os.dup(0), "rb") as source:
        os.dup2(2, 1)
        try:
            serve(source, sink, name, Path(root), probe(), bounds)
        except JailUnavailable as error:
            sink.write(encode(Ready(error=" ".join(str(error).split()))))
            return 3
        except BrokenPipeError:
            return 0  # the pool is gone
        except MemoryError:
            # Our own bound; the pool, which kills what is left of us, knows by the status that it was the answer.
            os._exit(MEMORY_STATUS)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
