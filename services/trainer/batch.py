"""Packing of samples into rows. Invariant: a trained token appears once and sees exactly its prompt and its own answer so far.

A group's prompt is laid down once and its answers after it; a block mask keeps answers and groups apart, and positions restart at
each answer. Rows are as wide as their longest unit, so a short group costs no padding to a long one beyond its own micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import torch
from torch import Tensor


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One sample as the loss sees it."""

    tokens: tuple[int, ...]
    """Sampled token ids; every one is trained."""
    mu: tuple[float, ...]
    """Log-probability of each under the policy that sampled it."""
    advantage: float
    fresh: tuple[bool, ...] = ()
    """Per token: sampled by the very policy that is being trained; empty means none."""


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt and the answers that share it: a whole group, or a part of one too long for a row."""

    prompt: tuple[int, ...]
    answers: tuple[Answer, ...]
    temperature: float = 1.0

    @property
    def length(self) -> int:
        """Input tokens: an answer's last token is predicted but never read."""
        return len(self.prompt) + sum(len(answer.tokens) - 1 for answer in self.answers)

    @property
    def trained(self) -> int:
        """Tokens with a loss."""
        return sum(len(answer.tokens) for answer in self.answers)


class Micro(msgspec.Struct, frozen=True, kw_only=True):
    """One forward pass. R rows of width W, n trained tokens."""

    input_ids: Tensor
    """[R, W] int64."""
    position_ids: Tensor
    """[R, W] int64."""
    mask: Tensor
    """[R, 1, W, W] bool; True where the query (third axis) may attend to the key (fourth)."""
    sources: Tensor
    """[n] int64: flat index into [R * W] of the place whose logits predict the token."""
    targets: Tensor
    """[n] int64 token ids."""
    mu: Tensor
    """[n] float32."""
    advantage: Tensor
    """[n] float32."""
    temperature: Tensor
    """[n] float32."""
    fresh: Tensor
    """[n] bool."""

    def to(self, device: torch.device) -> Micro:
        """The same on another device."""
        return Micro(**{name: getattr(self, name).to(device) for name in self.__struct_fields__})


def split(unit: Unit, row_tokens: int) -> list[Unit]:
    """`unit` in parts of at most `row_tokens` input tokens, where its prompt and one answer allow it; the prompt is repeated."""
    parts: list[Unit] = []
    taken: list[Answer] = []
    length = len(unit.prompt)
    for answer in unit.answers:
        size = len(answer.tokens) - 1
        if taken and length + size > row_tokens:
            parts.append(msgspec.structs.replace(unit, answers=tuple(taken)))
            taken, length = [], len(unit.prompt)
        taken.append(answer)
        length += size
    if taken:
        parts.append(msgspec.structs.replace(unit, answers=tuple(taken)))
    return parts


def pack(units: Iterable[Unit], row_tokens: int) -> list[Micro]:
    """Micro-batches of at most `row_tokens` padded tokens each, longest units first, each row filled first-fit.

    Raises:
        ValueError: a unit has no prompt or an answer has no token.
    """
    parts = [part for unit in units for part in split(unit, row_tokens)]
    for part in parts:
        if not part.prompt or any(not answer.tokens for answer in part.answers):
            raise ValueError("a unit needs a prompt and non-empty answers")
    parts.sort(key=lambda part: -part.length)
    micros: list[Micro] = []
    while parts:
        width = parts[0].length
        most = max(1, row_tokens // width)
        rows: list[list[Unit]] = []
        room: list[int] = []
        rest: list[Unit] = []
        for part in parts:
            place = next((row for row, free in enumerate(room) if free >= part.length), None)
            if place is None and len(rows) < most:
                rows.append([])
                room.append(width)
                place = len(rows) - 1
            if place is None:
                rest.append(part)
            else:
                rows[place].append(part)
                room[place] -= part.length
        micros.append(layout(rows, width))
        parts = rest
    return micros


def padded(units: Sequence[Unit]) -> list[Micro]:
    """One answer a row, prompt repeated, one micro-batch: the plain layout that packing must agree with."""
    single = [msgspec.structs.replace(unit, answers=(answer,)) for unit in units for answer in unit.answers]
    return [layout([[unit] for unit in single], max(unit.length for unit in single))] if single else []


def layout(rows: Sequence[Sequence[Unit]], width: int) -> Micro:
    """Tensors of one micro-batch; the units of a row are laid one after another and padded to `width`."""
    ids = torch.zeros(len(rows), width, dtype=torch.int64)
    positions = torch.zeros(len(rows), width, dtype=torch.int64)
    group = torch.full((len(rows), width), -1, dtype=torch.int64)
    block = torch.zeros(len(rows), width, dtype=torch.int64)
    sources: list[int] = []
    targets: list[int] = []
    mu: list[float] = []
    advantage: list[float] = []
    temperature: list[float] = []
    fresh: list[bool] = []
    for row, units in enumerate(rows):
        row_ids: list[int] = []
        row_positions: list[int] = []
        row_group: list[int] = []
        row_block: list[int] = []
        for number, unit in enumerate(units):
            row_ids.extend(unit.prompt)
            row_positions.extend(range(len(unit.prompt)))
            row_block.extend([0] * len(unit.prompt))
            row_group.extend([number] * unit.length)
            prompt_end = row * width + len(row_ids) - 1
            for index, answer in enumerate(unit.answers, start=1):
                start = row * width + len(row_ids)
                kept = len(answer.tokens) - 1
                row_ids.extend(answer.tokens[:-1])
                row_positions.extend(range(len(unit.prompt), len(unit.prompt) + kept))
                row_block.extend([index] * kept)
                sources.append(prompt_end)
                sources.extend(range(start, start + kept))
                targets.extend(answer.tokens)
                mu.extend(answer.mu)
                advantage.extend([answer.advantage] * len(answer.tokens))
                temperature.extend([unit.temperature] * len(answer.tokens))
                fresh.extend(answer.fresh or [False] * len(answer.tokens))
        used = len(row_ids)
        ids[row, :used] = torch.tensor(row_ids)
        positions[row, :used] = torch.tensor(row_positions)
        group[row, :used] = torch.tensor(row_group)
        block[row, :used] = torch.tensor(row_block)
    # Padding has group -1 and attends to earlier padding only, itself included: no row of the softmax is empty.
    same_group = group[:, :, None] == group[:, None, :]
    visible = (block[:, None, :] == 0) | (block[:, :, None] == block[:, None, :])
    causal = torch.ones(width, width, dtype=torch.bool).tril()
    return Micro(
        input_ids=ids,
        position_ids=positions,
        mask=(same_group & visible & causal)[:, None],
        sources=torch.tensor(sources, dtype=torch.int64),
        targets=torch.tensor(targets, dtype=torch.int64),
        mu=torch.tensor(mu, dtype=torch.float32),
        advantage=torch.tensor(advantage, dtype=torch.float32),
        temperature=torch.tensor(temperature, dtype=torch.float32),
        fresh=torch.tensor(fresh, dtype=torch.bool),
    )
