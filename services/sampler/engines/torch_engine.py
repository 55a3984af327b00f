"""transformers as an engine, for machines without vLLM. Invariant: same contract and log-probabilities as the vLLM adapter."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from schemas.trajectories import Finish
from services.sampler.engines.port import Engine, EngineError, Request, Scored, Segment
from services.sampler.engines.sampling import choose
from services.sampler.engines.weights import HEAD, Weights, end_tokens


@dataclass(slots=True)
class _Row:
    request: Request
    index: int
    budget: int
    token_ids: list[int] = field(default_factory=list)

    def context(self) -> tuple[int, ...]:
        return tuple(self.request.prompt_ids + self.token_ids)


@dataclass(slots=True)
class _Cohort:
    """Rows admitted together: one left-padded cache, one row each; finished rows are cut out of it."""

    rows: list[_Row]
    cache: Any
    mask: torch.Tensor
    """[rows, cached tokens], 0 where padded."""
    logits: torch.Tensor
    """[rows, vocabulary] of the next token."""


class TorchEngine(Engine):
    """See `Engine`. New samples join between steps as a cohort of their own; every step advances every cohort by one token."""

    name = "torch"

    def __init__(
        self, folder: Path, *, max_model_len: int, max_num_seqs: int, threads: int = 0, seed: int = 0
    ) -> None:
        """Build the model that `folder`/config.json describes; weights come with the first `load`.

        Raises:
            EngineError: transformers does not know the model.
        """
        super().__init__()
        from transformers import AutoConfig, AutoModelForCausalLM

        if threads:
            torch.set_num_threads(threads)
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            config = AutoConfig.from_pretrained(folder)
            config.tie_word_embeddings = False
            self._model = (
                AutoModelForCausalLM.from_config(config, dtype=torch.float32).to(self._device).eval()
            )
        except (ValueError, OSError, KeyError) as error:
            raise EngineError(f"{folder}: transformers does not build the model: {error}") from error
        self.max_model_len = max_model_len
        self._room = max_num_seqs
        self.tokens = max_num_seqs * max_model_len
        self._end = set(end_tokens(folder))
        self._random = torch.Generator(device=self._device).manual_seed(seed)
        self._waiting: list[_Row] = []
        self._cohorts: list[_Cohort] = []

    def submit(self, request: Request) -> None:
        """See `Engine`."""
        budget = self._admit(request)
        self._waiting += [_Row(request, index, budget) for index in range(request.n)]

    def abort(self, request_id: str) -> None:
        """See `Engine`."""
        self._waiting = [row for row in self._waiting if row.request.id != request_id]
        for cohort in self._cohorts:
            self._keep(cohort, [i for i, row in enumerate(cohort.rows) if row.request.id != request_id])
        self._cohorts = [cohort for cohort in self._cohorts if cohort.rows]

    def step(self) -> list[Segment]:
        """See `Engine`."""
        with torch.inference_mode():
            free = self._room - sum(len(cohort.rows) for cohort in self._cohorts)
            if self._waiting and free > 0:
                self._cohorts.append(self._prefill(self._waiting[:free]))
                del self._waiting[:free]
            segments = [segment for cohort in self._cohorts for segment in self._advance(cohort)]
        self._cohorts = [cohort for cohort in self._cohorts if cohort.rows]
        return segments

    def running(self) -> int:
        """See `Engine`."""
        return len(self._waiting) + sum(len(cohort.rows) for cohort in self._cohorts)

    def score(self, sequences: list[Scored]) -> list[list[float]]:
        """See `Engine`; one sequence at a time."""
        result: list[list[float]] = []
        for prompt, answer in sequences:
            if len(prompt) + len(answer) >= self.max_model_len:
                raise EngineError(
                    f"cannot score {len(prompt) + len(answer)} tokens within {self.max_model_len}"
                )
            ids = torch.tensor([prompt + answer], device=self._device)
            with torch.inference_mode():
                logits = self._model(input_ids=ids).logits[0, len(prompt) - 1 : -1].float()
            picked = logits.log_softmax(-1).gather(1, torch.tensor(answer, device=self._device)[:, None])
            result.append(picked[:, 0].tolist())
        return result

    def close(self) -> None:
        """See `Engine`."""
        self._waiting, self._cohorts = [], []

    def _install(self, weights: Weights) -> None:
        missing, unknown = self._model.load_state_dict(weights, strict=False)
        if set(missing) - {HEAD} or unknown:
            raise EngineError(f"tensors missing: {sorted(missing)[:3]}, unknown: {sorted(unknown)[:3]}")

    def _suspend(self) -> None:
        self._waiting = [row for cohort in self._cohorts for row in cohort.rows] + self._waiting
        self._cohorts = []

    def _resume(self) -> None:
        """Nothing is cached beyond the cohorts, which are gone; waiting rows are prefilled with their tokens."""

    def _prefill(self, rows: list[_Row]) -> _Cohort:
        # Samples of a group share their context, which is computed once.
        contexts = list(dict.fromkeys(row.context() for row in rows))
        width = max(len(context) for context in contexts)
        ids = torch.zeros(len(contexts), width, dtype=torch.long)
        mask = torch.zeros(len(contexts), width, dtype=torch.long)
        for i, context in enumerate(contexts):
            ids[i, width - len(context) :] = torch.tensor(context)
            mask[i, width - len(context) :] = 1
        ids, mask = ids.to(self._device), mask.to(self._device)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        output = self._model(
            input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True, logits_to_keep=1
        )
        place = {context: i for i, context in enumerate(contexts)}
        index = torch.tensor([place[row.context()] for row in rows], device=self._device)
        cache = output.past_key_values
        cache.batch_select_indices(index)
        return _Cohort(rows, cache, mask[index], output.logits[index, -1])

    def _advance(self, cohort: _Cohort) -> list[Segment]:
        tokens, logprobs = choose(
            cohort.logits.float(),
            [row.request.sampling.temperature for row in cohort.rows],
            [row.request.sampling.top_p for row in cohort.rows],
            self._random,
        )
        segments: list[Segment] = []
        kept: list[int] = []
        for i, (row, token, logprob) in enumerate(zip(cohort.rows, tokens, logprobs, strict=True)):
            row.token_ids.append(token)
            finish: Finish | None = None
            if token in self._end:
                finish = "stop"
            elif len(row.token_ids) >= row.budget:
                finish = "length"
            else:
                kept.append(i)
            segments.append(Segment(row.request.id, row.index, [token], [logprob], self._version, finish))
        self._keep(cohort, kept)
        if cohort.rows:
            ids = torch.tensor([[row.token_ids[-1]] for row in cohort.rows], device=self._device)
            cohort.mask = torch.cat([cohort.mask, cohort.mask.new_ones(len(cohort.rows), 1)], dim=1)
            output = self._model(
                input_ids=ids,
                attention_mask=cohort.mask,
                position_ids=cohort.mask.sum(-1, keepdim=True) - 1,
                past_key_values=cohort.cache,
                use_cache=True,
            )
            cohort.cache, cohort.logits = output.past_key_values, output.logits[:, -1]
        return segments

    def _keep(self, cohort: _Cohort, kept: list[int]) -> None:
        if len(kept) == len(cohort.rows):
            return
        cohort.rows = [cohort.rows[i] for i in kept]
        if kept:
            index = torch.tensor(kept, device=self._device)
            cohort.cache.batch_select_indices(index)
            cohort.mask, cohort.logits = cohort.mask[index], cohort.logits[index]
