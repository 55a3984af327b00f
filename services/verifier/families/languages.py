"""The languages of programs. Invariant: a language counts as present only if its tool is where the jail has it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

from services.verifier.specs import SpecError

PATH = "/usr/bin:/bin"


@dataclass(frozen=True, slots=True)
class Language:
    """How one language is built and run.

    `tool`: the command without which there is none; `source`: the answer's file name; `build`: the command
    that makes `program` of it, empty if it runs as it is; `run`: what comes before the path of what is run.
    """

    tool: str
    source: str
    build: tuple[str, ...] = ()
    run: tuple[str, ...] = ()


LANGUAGES = {
    # Site packages off and no bytecode, as for function tests.
    "python": Language("python3", "answer.py", run=("/usr/bin/python3", "-S", "-s", "-B")),
    "c": Language("gcc", "answer.c", ("gcc", "-O2", "-std=gnu17", "-o", "program", "answer.c", "-lm")),
    "cpp": Language("g++", "answer.cpp", ("g++", "-O2", "-std=gnu++17", "-o", "program", "answer.cpp")),
    "shell": Language("sh", "answer.sh", run=("/bin/sh",)),
    "javascript": Language("node", "answer.js", run=("/usr/bin/node",)),
}


def language(name: object) -> Language:
    """The language called `name`. Raises SpecError if there is none, or this machine has no tool for it."""
    if name not in LANGUAGES:
        raise SpecError(f"spec.language is {name!r}: choose one of {', '.join(LANGUAGES)}")
    found = LANGUAGES[str(name)]
    if shutil.which(found.tool, path=PATH) is None:
        raise SpecError(f"spec.language {name!r} needs {found.tool} in {PATH}: install it on every verifier")
    return found
