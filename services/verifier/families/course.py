"""The way of one answer through its stages. Invariant: where it stands is its results, the commands taken and one snapshot.

So it can be left after any stage and taken up elsewhere from those three, and what follows is the same: the last good state
is always what the snapshot holds, never what a run merely reported (a FIFO, a setuid bit), whether it was carried on or
restored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.verdicts import StageResult, clip
from services.verifier.families import commands, predicates, state
from services.verifier.families.commands import JailFaultError
from services.verifier.families.driven import ended
from services.verifier.families.terminal import ENV, command
from services.verifier.jail import Jail, Job, Limits, Outcome, Snapshot

NO_LINE = "the answer has no line for this stage"


@dataclass(frozen=True, slots=True)
class Step:
    """One stage's result, how many of the answer's commands were taken up to its end, and whether any was run."""

    result: StageResult
    taken: int
    ran: bool


class Course:
    """One answer on its way; owns the snapshot of the last good state."""

    def __init__(
        self, spec: dict[str, Any], limits: Limits, given: Sequence[str], jail: Jail, *, stop: bool
    ) -> None:
        """`given`: the answer's commands. `stop`: after a failed stage all later ones fail without being run."""
        self.spec, self.limits, self.given, self.jail, self.stop = spec, limits, given, jail, stop
        self.stages: list[dict[str, Any]] = spec["stages"]
        self.files: dict[str, str] = spec.get("files", {})
        self.results: list[StageResult] = []
        self.taken = 0
        self.snapshot: Snapshot | None = None
        self.untouched = self.good = state.initial(self.files)

    @property
    def finished(self) -> bool:
        """Whether every stage has its result."""
        return len(self.results) == len(self.stages)

    def resume(self, results: Iterable[StageResult], taken: int, snapshot: Snapshot | None) -> None:
        """Stand where another left off: its results, the commands it had taken, and the last good state."""
        self.results, self.taken = list(results), taken
        if snapshot is not None:
            self._stand_on(snapshot)

    def advance(self) -> list[Step]:
        """Up to the end of the next stage that has something to run, and past those behind it that have not.

        Raises JailFaultError; nothing of the stage in question is kept then.
        """
        made: list[Step] = []
        ran = False
        while not self.finished and not (ran and self._has_run()):
            runs = self._has_run()
            ran = ran or runs
            stage = self.stages[len(self.results)]
            self.results.append(self._skipped(stage) if self._stopped() else self._stage(stage))
            made.append(Step(self.results[-1], self.taken, runs))
        return made

    def close(self) -> None:
        """Forget the last good state."""
        if self.snapshot is not None:
            self.snapshot.close()

    def _stopped(self) -> bool:
        return self.stop and any(not result.passed for result in self.results)

    def _has_run(self) -> bool:
        """Whether the next stage has a command to run."""
        most = self.stages[len(self.results)].get("max_attempts", 1)
        texts = self.given[self.taken : self.taken + most]
        return not self._stopped() and any(text.strip() for text in texts)

    def _skipped(self, stage: dict[str, Any]) -> StageResult:
        return _failed(stage, "skipped", "an earlier stage failed")

    def _stage(self, stage: dict[str, Any]) -> StageResult:
        """Try a stage until it passes or its attempts are used up. Raises JailFaultError."""
        result = _failed(stage, "missing", NO_LINE)
        for _ in range(stage.get("max_attempts", 1)):
            if self.taken >= len(self.given):
                return result
            text = self.given[self.taken]
            self.taken += 1
            if not text.strip():
                result = _failed(stage, "missing", NO_LINE)
                continue
            result = self._judge(stage, self._run(command(text), stage))
            if result.passed:
                break
        return result

    def _run(self, argv: tuple[str, ...], stage: dict[str, Any]) -> Outcome:
        """One attempt at a stage. Raises JailFaultError."""
        files = state.entry_files(self.files) if self.snapshot is None else {}
        limits = commands.lowered(self.limits, stage.get("limits", {}))
        outcome = self.jail.run(
            Job(argv=argv, files=files, env=ENV, limits=limits, base=self.snapshot, keep=True)
        )
        if outcome.cause == "infra":
            raise JailFaultError(f"the jail failed in stage {stage['name']}: {outcome.detail}")
        return outcome

    def _judge(self, stage: dict[str, Any], outcome: Outcome) -> StageResult:
        """Decide one attempt and stand on what it left, or drop it. Raises JailFaultError."""
        final = state.after(self.good, outcome)
        snapshot = outcome.snapshot if outcome.diff.complete else None
        why = self._why(stage, outcome, final)
        if not why and snapshot is not None:
            failing = self._failing(stage, snapshot)
            why = f"not so: {', '.join(failing)}" if failing else "nothing was left to do" * self._idle(stage)
        if why or snapshot is None:
            if outcome.snapshot is not None:
                outcome.snapshot.close()
            return _failed(stage, ended(outcome), why or "its files could not be kept")
        self._stand_on(snapshot)
        return StageResult(
            name=stage["name"],
            weight=float(stage.get("weight", 1.0)),
            score=1.0,
            passed=True,
            cause=ended(outcome),
            snapshot=snapshot.digest,
        )

    def _why(self, stage: dict[str, Any], outcome: Outcome, final: state.State) -> str:
        """Why an attempt failed, as far as its own run shows; "" if it did not."""
        wrong = [predicates.label(c) for c in stage.get("checks", []) if not predicates.holds(c, final)]
        if wrong:
            return f"not so: {', '.join(wrong)}"
        protected = [*self.spec.get("protected", []), *stage.get("protected", [])]
        broken = state.broken(state.touched(outcome), protected)
        if broken:
            return f"protected: {', '.join(map(state.shown, broken))}"
        return "it had to be stopped" if outcome.cause in state.OUR_KILLS else ""

    def _failing(self, stage: dict[str, Any], start: Snapshot | None) -> list[str]:
        """Those of the stage's own commands that fail on `start` (None: the untouched files). Raises JailFaultError."""
        own = stage.get("commands", [])
        if not own:
            return []
        trusted = self.spec.get("trusted", {})
        results = commands.run(own, self.files if start is None else start, trusted, self.limits, self.jail)
        return [
            f"command {each['name']} ({result.evidence})"
            for each, result in zip(own, results, strict=True)
            if not result.passed
        ]

    def _idle(self, stage: dict[str, Any]) -> bool:
        """Whether nothing was left to do: it held on the untouched files, and held when it started."""
        held = all(
            predicates.holds(c, at) for c in stage.get("checks", []) for at in (self.untouched, self.good)
        )
        return held and not self._failing(stage, None) and not self._failing(stage, self.snapshot)

    def _stand_on(self, snapshot: Snapshot) -> None:
        """Make a snapshot the last good state."""
        if self.snapshot is not None and self.snapshot is not snapshot:
            self.snapshot.close()
        self.snapshot = snapshot
        self.good = state.standing(snapshot)


def _failed(stage: dict[str, Any], cause: str, evidence: str) -> StageResult:
    weight = float(stage.get("weight", 1.0))
    return StageResult(
        name=stage["name"], weight=weight, score=0.0, passed=False, cause=cause, evidence=clip(evidence)
    )


__all__ = ["Course", "JailFaultError", "Step"]
