"""Fixed prompts whose log-probabilities prove which weights an engine serves. Invariant: they are the same all run long."""

from __future__ import annotations

import msgspec
import torch

from services.trainer.batch import Answer, Micro, Unit, pack
from services.trainer.learner import Learner
from services.trainer.model import LanguageModel

PROMPTS = 8
PROMPT_TOKENS = 8
ANSWER_TOKENS = 4


class Canary(msgspec.Struct, frozen=True, kw_only=True):
    """Token ids, and what the weights beside this file say of them."""

    prompts: list[list[int]]
    answers: list[list[int]]
    logprobs: list[list[float]] = []
    """Log-probability (natural, temperature 1) of each answer token after its prompt and the answer tokens before it."""


def make(model: LanguageModel, special: frozenset[int], seed: int) -> Canary:
    """Prompts of random ordinary tokens, with answers drawn from the model itself.

    Answers of its own keep the log-probabilities moderate, so that a tolerance means the same for every model, and they are not
    greedy, so that an update of the weights moves them.
    """
    generator = torch.Generator().manual_seed(seed)
    ordinary = torch.tensor([token for token in range(model.vocabulary) if token not in special] or [0])
    allowed = torch.full((model.vocabulary,), -torch.inf)
    allowed[ordinary] = 0.0
    picks = torch.randint(len(ordinary), (PROMPTS, PROMPT_TOKENS), generator=generator)
    prompts: list[list[int]] = ordinary[picks].tolist()
    answers: list[list[int]] = [[] for _ in prompts]
    for prompt, answer in zip(prompts, answers, strict=True):
        for _ in range(ANSWER_TOKENS):
            logits = _next_logits(model, [*prompt, *answer]).cpu() + allowed
            answer.append(int(torch.multinomial(torch.softmax(logits, -1), 1, generator=generator)))
    return Canary(prompts=prompts, answers=answers)


def measure(learner: Learner, canary: Canary) -> Canary:
    """The same prompts and answers with the log-probabilities of today's weights."""
    return msgspec.structs.replace(canary, logprobs=learner.logprobs(canary.prompts, canary.answers))


def _next_logits(model: LanguageModel, tokens: list[int]) -> torch.Tensor:
    answer = Answer(tokens=(0,), mu=(0.0,), advantage=0.0)
    micro: Micro = pack([Unit(prompt=tuple(tokens), answers=(answer,))], len(tokens))[0]
    with torch.no_grad():
        return model.logits(micro.to(model.device))[0].float()
