"""The plugin of pytest that says what became of each expected test.

Invariant: a test passes if set-up, call and tear-down passed, each report of them, and the answer gave an answer to each call.
"""

# ruff: noqa: D102, E402
TYPE_CHECKING = False
import shutil
import sys

import pytest

from services.verifier.inside.kit import REPORT, frame, write_all

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from services.verifier.inside.remote import Session

TRUSTED = ("/t/", "/usr/")
"""Where the candidate cannot write, and modules may be imported from while it runs."""
WORDS = 80


class Records:
    """What the phases of the test that runs now came to, and which fixtures outlive it."""

    def __init__(self, ids: "list[str]", session: "Session", folder: str) -> None:
        self.place = {name: place for place, name in enumerate(ids)}
        self.session, self.folder = session, folder
        self.phases: dict[str, str] = {}
        self.left = set(ids)
        self.collected = ""

    def pytest_addoption(self, parser: "Any") -> None:
        """What the plugin for debugging, which is off, would define, and others read."""
        for name, dest in (("--trace", "trace"), ("--pdb", "usepdb")):
            parser.addoption(name, dest=dest, action="store_true", default=False)

    def pytest_collectreport(self, report: "Any") -> None:
        if report.failed and not self.collected:
            said = [line[1:].strip() for line in str(report.longrepr).splitlines() if line.startswith("E ")]
            self.collected = f"not collected: {said[-1] if said else 'no word why'}"

    def pytest_collection_finish(self) -> None:
        """The candidate runs from here on, and could make the folder anew: nothing is imported from there any more."""
        shutil.rmtree(self.folder)
        sys.path[:] = [place for place in sys.path if f"{place}/".startswith(TRUSTED)]
        sys.path_importer_cache.clear()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: "Any") -> "Generator[None, Any, Any]":
        """What a wider fixture got from the candidate lives as long as the fixture does; so does what it did not get."""
        if fixturedef.scope == "function":
            return (yield)
        asked = self.session.asked
        try:
            return (yield)
        finally:
            if self.session.asked != asked or self.session.lost():
                self.session.wide[id(fixturedef)] = self.session.lost()

    def pytest_fixture_post_finalizer(self, fixturedef: "Any") -> None:
        self.session.wide.pop(id(fixturedef), None)

    def pytest_runtest_logstart(self, nodeid: str) -> None:  # noqa: ARG002 (pytest gives it)
        self.phases = {}
        self.session.begin()

    def pytest_runtest_logreport(self, report: "Any") -> None:
        """One phase may have many reports, as each part of a test with subtests: what was bad once stays so."""
        said = "marked as failing" if hasattr(report, "wasxfail") else report.outcome
        self.phases[report.when] = self.phases.get(report.when) or ("" if said == "passed" else said)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        lost = self.session.lost()
        self.session.end()
        if nodeid not in self.place:
            return
        bad = next((f"{when} {said}" for when, said in self.phases.items() if said), "")
        if not bad and set(self.phases) != {"setup", "call", "teardown"}:
            bad = "did not run"
        if lost:
            bad = f"{bad or 'call failed'}: {lost}"
        self.say(nodeid, bad)

    def say(self, nodeid: str, bad: str) -> None:
        self.left.discard(nodeid)
        write_all(
            REPORT, frame(b"F" if bad else b"P", self.place[nodeid], bad.encode("utf-8", "replace")[:WORDS])
        )

    def missing(self) -> None:
        """When pytest has ended: why a test was not even begun, where that is known."""
        if self.collected:
            for nodeid in sorted(self.left):
                self.say(nodeid, self.collected)
