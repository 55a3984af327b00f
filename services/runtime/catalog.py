"""The domains and their tasks. Invariant: a draw is a pure function of (card, split, seed), and no prompt is in both splits."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

import msgspec

from schemas.cards import Card, CardError, load_card
from schemas.ids import derive, digest
from schemas.tasks import Purpose, Sample, Task, spec_bytes
from services.runtime.sources import CatalogError, Generator, card_files, load_function, load_rows

__all__ = ["Catalog", "CatalogError", "Drawn", "Generator", "Split", "split_of"]

Split = Literal["train", "heldout"]
NATURAL: tuple[float, ...] = (0.0, 0.5, 1.0)
"""Difficulties drawn from, equally, when the caller names none."""
TRIES = 200
"""Redraws for one prompt before the domain counts as exhausted."""


@dataclass(frozen=True)
class Drawn:
    """A task with what only its author knows."""

    task: Task
    gold: str
    slips: tuple[str, ...] = ()


def split_of(domain: str, prompt: str) -> Split:
    """The side a prompt belongs to, by its hash: a quarter of all prompts are held out."""
    return "heldout" if hashlib.sha256(f"{domain}\n{prompt}".encode()).digest()[0] % 4 == 0 else "train"


class Catalog:
    """All cards of an installation that a run may use."""

    def __init__(self, cards: dict[str, tuple[Card, Path]]) -> None:
        """`cards`: by name, with the file each came from."""
        self.cards: dict[str, Card] = {name: card for name, (card, _) in sorted(cards.items())}
        self._files = {name: path for name, (_, path) in cards.items()}
        self._generators: dict[str, Generator] = {}

    @classmethod
    def load(
        cls,
        paths: Iterable[str | Path] = ("domains",),
        include: Iterable[str] = ("*",),
        exclude: Iterable[str] = (),
        *,
        key: str = "domains.include",
    ) -> Catalog:
        """Every card below `paths` whose name matches a pattern of `include` and none of `exclude`.

        `key`: where the patterns were written, for errors; empty for the words of a command.

        Relative paths are looked up below the working directory, then beside the packages.

        Raises:
            CatalogError: a missing folder, a broken card, two cards of one name, or a pattern that matches nothing.
        """
        include, exclude = tuple(include), tuple(exclude)
        found: dict[str, tuple[Card, Path]] = {}
        for path in card_files(paths):
            try:
                card = load_card(path)
            except CardError as error:
                raise CatalogError(str(error)) from error
            if card.name in found:
                raise CatalogError(
                    f"{path}: domain {card.name} is already described by {found[card.name][1]}; rename one"
                )
            found[card.name] = card, path
        for pattern in include:
            if pattern != "*" and not any(fnmatchcase(name, pattern) for name in found):
                said = f"{key}: {pattern!r}" if key else f"unknown domain {pattern!r}: it"
                raise CatalogError(
                    f"{said} matches none of the {len(found)} domains; `temper domains ls` lists them"
                )
        chosen = {
            name: entry
            for name, entry in found.items()
            if any(fnmatchcase(name, pattern) for pattern in include)
            and not any(fnmatchcase(name, pattern) for pattern in exclude)
        }
        return cls(chosen)

    def card(self, domain: str) -> Card:
        """The card of `domain`.

        Raises:
            CatalogError: no such domain.
        """
        if domain not in self.cards:
            raise CatalogError(
                f"unknown domain {domain!r}; `temper domains ls` lists the {len(self.cards)} there are"
            )
        return self.cards[domain]

    def path(self, domain: str) -> Path:
        """The file that describes `domain`."""
        self.card(domain)
        return self._files[domain]

    def sample(
        self, domain: str, *, split: Split, seed: int, count: int, difficulty: float | None = None
    ) -> list[Drawn]:
        """`count` tasks with distinct prompts, the same for the same arguments; more of them extend the list.

        Raises:
            CatalogError: no such domain, a generator that fails, or fewer distinct prompts than `count`.
        """
        card = self.card(domain)
        rows = self._rows(card, seed, difficulty) if card.dataset else []
        seen: set[str] = set()
        drawn: list[Drawn] = []

        def take(candidates: Iterable[Sample]) -> bool:
            for sample in candidates:
                prompt = card.prompt.template.replace("{prompt}", sample.prompt)
                if prompt not in seen and split_of(domain, prompt) == split:
                    seen.add(prompt)
                    drawn.append(Drawn(_task(card, sample, prompt, split, seed), sample.gold, sample.slips))
                    return True
            return False

        remaining = iter(rows)
        while len(drawn) < count:
            index = len(drawn)
            rng = random.Random(f"{domain}/{split}/{seed}/{index}")
            if not take(remaining if card.dataset else self._tries(card, rng, index, difficulty)):
                raise CatalogError(
                    f"{self._files[domain]}: {domain} yields {index} distinct {split} prompts"
                    + ("" if difficulty is None else f" at difficulty {difficulty:g}")
                    + f", {count} were asked for; ask for fewer, or widen its generator"
                )
        return drawn

    def _tries(
        self, card: Card, rng: random.Random, index: int, difficulty: float | None
    ) -> Iterator[Sample]:
        """Candidates for one task.

        Without a wanted difficulty the levels take turns; when the one on turn seems used up, any will do.
        """
        generate = self._generator(card)
        level = NATURAL[index % len(NATURAL)] if difficulty is None else difficulty
        for attempt in range(TRIES):
            if difficulty is None and attempt >= TRIES // 2:
                level = rng.choice(NATURAL)
            try:
                sample = generate(rng, level, dict(card.options))
            except (
                Exception
            ) as error:  # A generator is somebody's own code: whatever it raises is its card's fault.
                raise CatalogError(
                    f"{self._files[card.name]}: {card.generator} fails: {type(error).__name__}: {error}"
                ) from error
            if not isinstance(sample, Sample):
                raise CatalogError(
                    f"{self._files[card.name]}: {card.generator} returns {type(sample).__name__}, not a Sample"
                )
            yield msgspec.structs.replace(sample, difficulty=level)

    def _generator(self, card: Card) -> Generator:
        if card.name not in self._generators:
            self._generators[card.name] = load_function(card.generator, self._files[card.name])
        return self._generators[card.name]

    def _rows(self, card: Card, seed: int, difficulty: float | None) -> list[Sample]:
        """The data set in the seed's order; with a wanted difficulty, only the rows of the level nearest to it."""
        rows = load_rows(self._files[card.name].parent / card.dataset)
        if difficulty is not None and rows:
            nearest = min(
                (row.difficulty for row in rows), key=lambda level: (abs(level - difficulty), level)
            )
            rows = [row for row in rows if row.difficulty == nearest]
        random.Random(f"{card.name}/{seed}").shuffle(rows)
        return rows


def _task(card: Card, sample: Sample, prompt: str, split: Split, seed: int) -> Task:
    purpose: Purpose = "train" if split == "train" else "eval"
    task = Task(
        id="-",
        domain=card.name,
        prompt=prompt,
        system=card.prompt.system,
        spec=sample.spec,
        difficulty=sample.difficulty,
        kind=sample.kind,
        purpose=purpose,
    )
    content = digest(spec_bytes(task))
    return msgspec.structs.replace(
        task, id=derive("task", card.name, split, seed, prompt, f"{sample.difficulty:g}", content)
    )
