"""What is known of the jail's runs for one answer. Invariant: counted out here, from outcomes; nothing of it is the program's."""

from __future__ import annotations

from services.verifier.bounds import Bounds
from services.verifier.families.driven import idled
from services.verifier.jail import Jail, Job, Outcome


class Watched:
    """A jail that counts its runs and remembers whether one failed by our fault.

    `settled` until a run meets a limit of its jail, is ended for its time while it waits, or has a network: then the same
    job might give something else next time.

    Its runs are outside the bounds of the checks.
    """

    def __init__(self, jail: Jail, bounds: Bounds) -> None:
        self._jail, self._bounds = jail, bounds
        self.runs, self.cpu_s, self.wall_s, self.failed, self.settled = 0, 0.0, 0.0, False, True

    def run(self, job: Job) -> Outcome:
        """As the jail within."""
        with self._bounds.lifted():
            outcome = self._jail.run(job)
        self.runs += 1
        self.cpu_s += outcome.cpu_s
        self.wall_s += outcome.wall_s
        self.failed = self.failed or outcome.cause == "infra"
        alike = not outcome.met and outcome.network == "none" and not idled(outcome.report)
        self.settled = self.settled and alike
        return outcome
