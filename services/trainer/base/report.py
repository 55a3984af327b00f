"""A quick look at a base on held-out prompts. Invariant: answers are compared as text, never executed."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import torch
from transformers import LlamaForCausalLM

from schemas.tasks import Sample
from services.trainer.base.demonstrations import Source, draw
from services.trainer.base.model import END_ID, PAD_ID


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Shares in [0, 1] of one domain's held-out prompts."""

    domain: str
    exact: float
    """Samples at temperature 1 that equal the gold answer."""
    slipped: float
    """Samples that equal one of the listed slips."""
    best: float
    """Prompts with a right answer among their samples."""
    greedy: float


@torch.no_grad()
def answers(
    model: LlamaForCausalLM, prompts: Sequence[str], *, greedy: bool, max_tokens: int, seed: int
) -> list[str]:
    """One sampled answer a prompt (temperature 1), all in one left-padded batch."""
    generator = torch.Generator().manual_seed(seed)
    encoded = [list(prompt.encode()) for prompt in prompts]
    width = max(map(len, encoded))
    ids = torch.tensor([[PAD_ID] * (width - len(row)) + row for row in encoded])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in encoded])
    cache = None
    done = torch.zeros(len(encoded), dtype=torch.bool)
    taken: list[torch.Tensor] = []
    for _ in range(max_tokens):
        places = (mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        out = model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=places,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        cache = out.past_key_values
        logits = out.logits[:, -1]
        ids = (
            logits.argmax(-1, keepdim=True)
            if greedy
            else torch.multinomial(logits.softmax(-1), 1, generator=generator)
        )
        taken.append(torch.where(done, PAD_ID, ids[:, 0]))
        done |= ids[:, 0] == END_ID
        mask = torch.cat([mask, torch.ones_like(ids)], dim=1)
        if bool(done.all()):
            break
    columns = torch.stack(taken, dim=1).tolist()
    return [bytes(token for token in row if token < END_ID).decode(errors="replace") for row in columns]


def rows(
    model: LlamaForCausalLM, origin: Sequence[Source], *, prompts: int, group: int, seed: int
) -> list[Row]:
    """A row a domain, from `prompts` held-out prompts with `group` samples each."""
    made: list[Row] = []
    for number, source in enumerate(origin):
        rng = random.Random(f"{seed}:{source.domain}")
        drawn: list[Sample] = [draw(rng, source, "heldout") for _ in range(prompts)]
        many = [sample for sample in drawn for _ in range(group)]
        sampled = answers(model, [s.prompt for s in many], greedy=False, max_tokens=40, seed=seed + number)
        best = answers(model, [s.prompt for s in drawn], greedy=True, max_tokens=40, seed=seed)
        right = [text == sample.gold for text, sample in zip(sampled, many, strict=True)]
        slipped = [text in sample.slips for text, sample in zip(sampled, many, strict=True)]
        found = [any(right[start : start + group]) for start in range(0, len(right), group)]
        greedy = [text == sample.gold for text, sample in zip(best, drawn, strict=True)]
        made.append(
            Row(
                domain=source.domain,
                exact=sum(right) / len(right),
                slipped=sum(slipped) / len(slipped),
                best=sum(found) / len(found),
                greedy=sum(greedy) / len(greedy),
            )
        )
    return made


def table(made: Sequence[Row]) -> str:
    """The rows as a Markdown table with their mean."""
    lines = ["| domain | exact | slips | best of group | greedy |", "| --- | --- | --- | --- | --- |"]
    lines += [
        f"| {row.domain} | {row.exact:.2f} | {row.slipped:.2f} | {row.best:.2f} | {row.greedy:.2f} |"
        for row in made
    ]
    count = len(made)
    mean = [
        sum(getattr(row, field) for row in made) / count for field in ("exact", "slipped", "best", "greedy")
    ]
    lines.append("| mean | " + " | ".join(f"{value:.2f}" for value in mean) + " |")
    return "\n".join(lines)
