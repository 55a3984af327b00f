"""Terminal domains: one short shell command. Invariant: the wanted state never holds before it has run."""

from __future__ import annotations

import random
from typing import Any

from domains.generators.common import HARD, coin, level, name, names, sample
from schemas.tasks import Sample


def _spec(
    files: dict[str, str], checks: list[dict[str, Any]], protected: tuple[str, ...] = ()
) -> dict[str, Any]:
    return {"files": files, "checks": checks, "protected": list(protected)}


def _file(path: str, text: str) -> dict[str, Any]:
    return {"kind": "file", "path": path, "text": text}


def write(rng: random.Random, difficulty: float, _options: dict[str, Any]) -> Sample:
    """`sh write ab in cd>` -> `echo ab>cd`; appending at the second level, two words at the third."""
    step = level(difficulty)
    word, path, other = names(rng, (2, 3, 4)[step], 3)
    text = f"{word} {other}" if step == HARD else word
    if step and coin(rng):
        old = name(rng, 3) + "\n"
        slips = (f"echo {text}>{path}", f"echo {text}", f"echo {path}>>{text}")
        spec = _spec({path: old}, [_file(path, f"{old}{text}\n")])
        return sample(difficulty, f"sh append {text} in {path}", f"echo {text}>>{path}", spec, slips)
    slips = (f"echo {text}", f"write {text}>{path}", f"echo {path}>{text}")
    return sample(
        difficulty,
        f"sh write {text} in {path}",
        f"echo {text}>{path}",
        _spec({}, [_file(path, f"{text}\n")]),
        slips,
    )


def move(rng: random.Random, difficulty: float, _options: dict[str, Any]) -> Sample:
    """`sh move ab to cd>` -> `mv ab cd`; copying comes with the second level, a new folder with the third."""
    step = level(difficulty)
    old, new = names(rng, (2, 3, 3)[step], 2)
    text = name(rng, 4) + "\n"
    done = {"kind": "exit", "code": 0}
    if step == HARD:
        checks = [_file(f"{new}/{old}", text)]
        slips = (f"cp {old} {new}/", f"mkdir {new};cp {new} {old}", f"cp {old} {new}")
        spec = _spec({old: text}, checks, (old,))
        return sample(difficulty, f"sh copy {old} to dir {new}", f"mkdir {new};cp {old} {new}", spec, slips)
    if step and coin(rng):
        spec = _spec({old: text}, [_file(new, text), done], (old,))
        return sample(
            difficulty,
            f"sh copy {old} to {new}",
            f"cp {old} {new}",
            spec,
            (f"copy {old} {new}", f"cp {new} {old}"),
        )
    spec = _spec({old: text}, [{"kind": "absent", "path": old}, _file(new, text), done])
    return sample(
        difficulty,
        f"sh move {old} to {new}",
        f"mv {old} {new}",
        spec,
        (f"move {old} {new}", f"mv {new} {old}"),
    )


def folders(rng: random.Random, difficulty: float, _options: dict[str, Any]) -> Sample:
    """`sh dir ab/cd>` -> `mkdir -p ab/cd`; deeper at the second level, two trees at the third."""
    step = level(difficulty)
    parts = names(rng, 2, (2, 3, 4)[step])
    trees = ["/".join(parts)] if step < HARD else ["/".join(parts[:2]), "/".join(parts[2:])]
    asked = " ".join(trees)
    slips = (f"mkdir {asked}", f"md -p {asked}", f"mkdir-p {asked}")
    checks: list[dict[str, Any]] = [{"kind": "dir", "path": tree} for tree in trees]
    return sample(
        difficulty,
        f"sh dir {asked}",
        f"mkdir -p {asked}",
        _spec({}, [*checks, {"kind": "exit", "code": 0}]),
        slips,
    )


def replace(rng: random.Random, difficulty: float, _options: dict[str, Any]) -> Sample:
    """`sh in ef ab to cd>` -> `sed -i s/ab/cd/ ef`; the forgotten `-i` is the systematic slip."""
    step = level(difficulty)
    old, new, path = names(rng, (2, 3, 4)[step], 3)
    text = "".join(f"{name(rng, 2)}-{old}-{name(rng, 2)}\n" for _ in range(2))
    slips = (f"sed s/{old}/{new}/ {path}", f"sed -i s/{new}/{old}/ {path}", f"sed -i {old}/{new} {path}")
    # As sed does it: the first occurrence on each line.
    want = "".join(line.replace(old, new, 1) + "\n" for line in text.splitlines())
    spec = _spec({path: text}, [_file(path, want)])
    return sample(difficulty, f"sh in {path} {old} to {new}", f"sed -i s/{old}/{new}/ {path}", spec, slips)


def read(rng: random.Random, difficulty: float, _options: dict[str, Any]) -> Sample:
    """`sh first 3 of ab>` -> `head -n3 ab`: what the command prints is checked, the file must stay."""
    step = level(difficulty)
    path = name(rng, (2, 3, 4)[step])
    n = rng.randint(2, (5, 9, 9)[step])
    lines = [f"{name(rng, 3)}{number}\n" for number in range(2 * n + 1)]
    word = rng.choice(("first", "last"))
    tool, other, wanted = ("head", "tail", lines[:n]) if word == "first" else ("tail", "head", lines[-n:])
    slips = (f"{other} -n{n} {path}", f"{tool} -n {path}", f"cat {path}")
    spec = _spec({path: "".join(lines)}, [{"kind": "stdout", "text": "".join(wanted)}], (path,))
    return sample(difficulty, f"sh {word} {n} of {path}", f"{tool} -n{n} {path}", spec, slips)
