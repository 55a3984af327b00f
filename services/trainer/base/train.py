"""The supervised loop. Invariant: deterministic for a thread count; the loss sees answers only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from transformers import LlamaForCausalLM

from services.trainer.base.demonstrations import Source, demonstrations
from services.trainer.base.model import END_ID, PAD_ID, fresh
from services.trainer.base.packing import Batch, batches
from services.trainer.base.settings import Build

Progress = Callable[[int, float, LlamaForCausalLM], None]
"""Called after each step with its number from 1, its loss in nats a token, and the model."""


def learning_rate(step: int, build: Build) -> float:
    """Rate of step `step` (from 0): linear warm-up, then linear decay to 0."""
    if step < build.warmup_steps:
        return build.learning_rate * (step + 1) / build.warmup_steps
    return build.learning_rate * (build.steps - step) / max(1, build.steps - build.warmup_steps)


def answer_loss(model: LlamaForCausalLM, batch: Batch) -> torch.Tensor:
    """Mean cross entropy in nats of the marked tokens, each predicted from its sample's tokens before it."""
    ids = torch.from_numpy(batch.ids)
    segments = torch.from_numpy(batch.segments)
    tokens = ids.shape[1]
    causal = torch.ones(tokens, tokens, dtype=torch.bool).tril()
    # Padding attends to padding before it, so no row of the mask is empty.
    mask = (segments[:, :, None] == segments[:, None, :]) & causal
    hidden = model.model(
        input_ids=ids,
        attention_mask=mask[:, None],
        position_ids=torch.from_numpy(batch.positions),
        use_cache=False,
    ).last_hidden_state
    # A sample's first token is a prompt's, never a target: no prediction crosses samples.
    wanted = torch.from_numpy(batch.targets)[:, 1:]
    logits = model.lm_head(hidden[:, :-1][wanted])
    return torch.nn.functional.cross_entropy(logits, ids[:, 1:][wanted])


def train(origin: Sequence[Source], build: Build, progress: Progress) -> LlamaForCausalLM:
    """Train from random weights on demonstrations of `origin`; AdamW(.9, .98)."""
    model = fresh(build.seed)
    model.train()
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=build.learning_rate, betas=(0.9, 0.98), weight_decay=build.weight_decay
    )
    stream = batches(
        demonstrations(origin, build), rows=build.rows, tokens=build.row_tokens, end=END_ID, pad=PAD_ID
    )
    for step in range(build.steps):
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(step, build)
        loss = answer_loss(model, next(stream))
        optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), build.clip_norm)
        optimiser.step()
        progress(step + 1, float(loss.detach()), model)
    return model.eval()
