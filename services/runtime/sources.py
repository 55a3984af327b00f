"""Where cards and samples come from. Invariant: whatever is wrong with a card's files is one line that names the file."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import msgspec

from schemas.tasks import Sample
from services.runtime.errors import BadInput

Generator = Callable[[random.Random, float, dict[str, Any]], Sample]
PROJECT = Path(__file__).resolve().parents[2]
MODELS = "models"
"""Folder of base models beside the cards: no cards in there."""


class CatalogError(BadInput):
    """A domain that does not exist or cannot yield what was asked."""


def card_files(paths: Iterable[str | Path]) -> Iterator[Path]:
    """Every `*.toml` at or below `paths`; relative ones are looked up in the working directory, then the project.

    Raises:
        CatalogError: a path that does not exist.
    """
    for given in paths:
        candidates = [Path(given), PROJECT / given]
        place = next((path for path in candidates if path.exists()), None)
        if place is None:
            raise CatalogError(
                f"{given}: no such folder of cards; give one with --domains.paths '[\"FOLDER\"]'"
            )
        if place.is_file():
            yield place
            continue
        for path in sorted(place.rglob("*.toml")):
            if MODELS not in path.relative_to(place).parts[:-1]:
                yield path


def load_function(reference: str, card_file: Path) -> Generator:
    """The function `module:function` or `file.py:function` names.

    Raises:
        CatalogError: it cannot be imported, or is no function.
    """
    place, _, name = reference.rpartition(":")
    try:
        module = (
            _load_file(card_file.parent / place) if place.endswith(".py") else importlib.import_module(place)
        )
    except Exception as error:  # Importing runs somebody's own code: whatever it raises is its card's fault.
        raise CatalogError(f"{card_file}: generator {reference}: {type(error).__name__}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise CatalogError(f"{card_file}: generator {reference}: {place} has no function {name}")
    return cast("Generator", function)


def _load_file(path: Path) -> ModuleType:
    name = "temper_generator_" + hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
    if name in sys.modules:
        return sys.modules[name]
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def load_rows(path: Path) -> list[Sample]:
    """The data set's lines.

    Raises:
        CatalogError: unreadable, or a line that is no sample.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise CatalogError(f"{path}: data set cannot be read: {error.strerror}") from error
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            rows.append(msgspec.json.decode(line, type=Sample))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise CatalogError(f"{path}:{number}: not a sample (prompt, spec, gold): {error}") from error
    return rows
