"""A whole tree of files against the wanted one. Invariant: pure; every change counts once, for or against.

F1 = 2PR / (P + R) over changes, each a (path, type, digest), a deletion being (path, absent): P is the share of the changes
made that are wanted (what was left beside them lowers it), R the share of the wanted ones that were made. The wanted
changes are those of the wanted entries that differ from the files as given. Folders on the way to a wanted path need not
be named and do not count; neither does what matches an `ignore` glob.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from services.verifier import specs
from services.verifier.families.state import State, check_place, ignored, shown
from services.verifier.jail import Change

Fact = tuple[str, str]
"""Type and digest; `("absent", "")` for a path that is not there."""
ABSENT: Fact = ("absent", "")
FORMS = ("text", "sha256", "dir", "link", "absent")


def check_tree(tree: Any, before: State, where: str) -> None:
    """`want`: {path: {one of `text`, `sha256`, `dir` true, `link` target, `absent` true}}, `weight`. Raises SpecError."""
    specs.keys(specs.table(tree, where), ("want", "weight"), where)
    specs.number(tree.get("weight", 1.0), f"{where}.weight", low=1e-6, high=1e6)
    want = specs.table(tree.get("want"), f"{where}.want")
    for path, form in want.items():
        here = f"{where}.want.{path}"
        check_place(path, here)
        specs.keys(specs.table(form, here), FORMS, here)
        if len(form) != 1:
            raise specs.SpecError(f"{here} needs exactly one of {', '.join(FORMS)}")
        (name, value), *_ = form.items()
        if name in ("dir", "absent"):
            if value is not True:
                raise specs.SpecError(f"{here}.{name} must be true")
        else:
            specs.text(value, f"{here}.{name}", empty=name == "text")
    if not wanted(want, before):
        raise specs.SpecError(f"{where}.want holds before any command has run: name something that changes")


def fact(entry: Change | None) -> Fact:
    """What counts of an entry."""
    return ABSENT if entry is None else (entry.type, entry.digest)


def _form(form: Mapping[str, Any]) -> Fact:
    (name, value), *_ = form.items()
    if name == "absent":
        return ABSENT
    if name == "dir":
        return ("dir", "")
    if name == "sha256":
        return ("file", str(value))
    return ("symlink" if name == "link" else "file", sha256(str(value).encode("utf-8")).hexdigest())


def wanted(want: Mapping[str, Mapping[str, Any]], before: State) -> dict[str, Fact]:
    """The wanted changes by path."""
    facts = {path: _form(form) for path, form in want.items()}
    return {path: each for path, each in facts.items() if each != fact(before.entries.get(path))}


def score(tree: Mapping[str, Any], before: State, final: State, ignore: Sequence[str]) -> tuple[float, str]:
    """F1 and one line: what is missing and what is too much."""
    asked = wanted(tree["want"], before)
    on_the_way = {path[:at] for path in tree["want"] for at, char in enumerate(path) if char == "/"}
    made = {
        path: fact(final.entries.get(path))
        for path in {*before.entries, *final.entries}
        if fact(before.entries.get(path)) != fact(final.entries.get(path))
        and not ignored(path, ignore)
        and (path in asked or not (path in on_the_way and fact(final.entries.get(path))[0] == "dir"))
    }
    right = {path for path, each in asked.items() if made.get(path) == each}
    missing, beyond = sorted(asked.keys() - right), sorted(made.keys() - right)
    notes = [f"missing {', '.join(map(shown, missing[:3]))}"] * bool(missing) + [
        f"wrong {', '.join(map(shown, beyond[:3]))}"
    ] * bool(beyond)
    # 2PR / (P + R) with P = right / made and R = right / asked.
    return 2 * len(right) / (len(made) + len(asked)), "; ".join(notes)
