"""What a job is given when it starts: its pipes, and the request that names them.

Invariant: once a job is submitted, or was not, none of the ends that it uses is open here, so that a reader sees the end of its
stream when the last process of the job is dead.
"""

from __future__ import annotations

import os

from services.verifier.jail import config
from services.verifier.jail.job import Job
from services.verifier.jail.jobgroups import JobGroups
from services.verifier.jail.launcher import Launcher
from services.verifier.jail.streams import Inflow, Outflow


class Pipes:
    """The descriptors of one job, on both sides."""

    def __init__(self, job: Job, owner: int) -> None:
        """`owner` may open standard streams again by name, except where the job says not, or a report must stay out of reach."""
        self.opened: list[Inflow | Outflow] = []
        try:
            cap = job.limits.output_bytes
            self.stdout, self.stderr = self._inflow(cap, tail=True), self._inflow(cap, tail=True)
            self.report = self._inflow(cap, tail=False) if job.report else None
            self.stdin = Outflow(job.stdin)
            self.opened.append(self.stdin)
            if job.reopen and not job.report:
                for flow in (self.stdin, self.stdout, self.stderr):
                    os.fchown(flow.far, owner, owner)
        except BaseException:
            self.close()
            raise

    def _inflow(self, cap: int, *, tail: bool) -> Inflow:
        flow = Inflow(cap, tail=tail)
        self.opened.append(flow)
        return flow

    def far_ends(self) -> list[int]:
        """What the job is given, in the order of the request."""
        ends = [self.stdin.far, self.stdout.far, self.stderr.far]
        return ends if self.report is None else [*ends, self.report.far]

    def close_far(self) -> None:
        """Close our copies of what the job uses."""
        for flow in self.opened:
            flow.close_far()

    def close(self) -> None:
        """Close everything; closing twice is fine."""
        for flow in self.opened:
            flow.close()


def submit(
    launcher: Launcher,
    job: Job,
    number: int,
    pipes: Pipes,
    groups: JobGroups,
    *,
    own_network: bool,
    late: bool = False,
) -> None:
    """Send the job to the keeper. Raises OSError. All our far ends are closed afterwards."""
    file: list[int] = []
    try:
        procs = groups.procs()
        header, text = config.request(job, number, len(procs), own_network=own_network, late=late)
        if len(text) > config.TEXT_MAX:
            file = [os.memfd_create("request")]
            view = memoryview(text)
            while view:
                view = view[os.write(file[0], view) :]
            text = b""
        launcher.run(header, text, [*pipes.far_ends(), *file, *procs])
    finally:
        for fd in file:
            os.close(fd)
        pipes.close_far()
