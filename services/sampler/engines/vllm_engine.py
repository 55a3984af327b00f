"""vLLM in this process, on GPUs or CPUs. Invariant: no key or value computed under one policy version is read under another."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from services.sampler.engines.port import Engine, EngineError, Request, Scored, Segment
from services.sampler.engines.weights import Weights, end_tokens

SHORT = 2048
"""Longest context, in tokens, for which small cache blocks are worth their bookkeeping."""


@dataclass(frozen=True, slots=True)
class VllmOptions:
    """What the run's settings decide."""

    max_model_len: int
    max_num_seqs: int
    kv_cache_mib: int
    threads: int = 0
    seed: int = 0


@dataclass(slots=True)
class _Sample:
    request: Request
    index: int
    budget: int
    token_ids: list[int] = field(default_factory=list)
    handle: str = ""


def prepare(environment: MutableMapping[str, str], *, cpu: bool) -> None:
    """Set what vLLM reads at import. Values that are already there stay, so that an operator can overrule them."""
    wanted = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if cpu:
        # Pinning to the first cores would fight with every other process of the run; a few small functions that vLLM
        # compiles even in eager mode cost 3 s (20 s in a cold cache) and gain nothing measurable here.
        wanted |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "TORCHDYNAMO_DISABLE": "1"}
    for name, value in wanted.items():
        environment.setdefault(name, value)


def cache_tokens(config: Any) -> int:
    """Tokens that vLLM's key-value cache holds, from its `CacheConfig` once the engine is up.

    `kv_cache_size_tokens` where this version has it: it knows of layers that need blocks of their own kind.
    """
    size: int | None = getattr(config, "kv_cache_size_tokens", None)
    return size or (config.num_gpu_blocks or 0) * config.block_size


class VllmEngine(Engine):
    """See `Engine`. Samples are single requests: those of a group meet in the prefix cache, and each ends by itself."""

    name = "vllm"

    def __init__(self, folder: Path, options: VllmOptions) -> None:
        """Build the model that `folder`/config.json describes; weights come with the first `load`.

        Raises:
            EngineError: vLLM does not take the model or the settings.
        """
        super().__init__()
        if options.threads:  # read when torch is imported
            os.environ.setdefault("OMP_NUM_THREADS", str(options.threads))
        import torch

        if options.threads:  # before vLLM turns this call into a no-op
            torch.set_num_threads(options.threads)
        cpu = not torch.cuda.is_available()
        prepare(os.environ, cpu=cpu)
        from vllm.engine.arg_utils import EngineArgs
        from vllm.sampling_params import RequestOutputKind, SamplingParams
        from vllm.v1.engine.llm_engine import LLMEngine

        self._params, self._delta = SamplingParams, RequestOutputKind.DELTA
        self._final = RequestOutputKind.FINAL_ONLY
        self.max_model_len = options.max_model_len
        self._end = end_tokens(folder)
        settings: dict[str, Any] = {
            "model": str(folder),
            # Weights always come through `load`, hence through one code path, with the head untied.
            "load_format": "dummy",
            "hf_overrides": {"tie_word_embeddings": False},
            "skip_tokenizer_init": True,
            "generation_config": "vllm",
            "max_model_len": options.max_model_len,
            "max_num_seqs": options.max_num_seqs,
            "kv_cache_memory_bytes": options.kv_cache_mib << 20,
            "max_num_batched_tokens": max(4096, options.max_model_len),
            "enable_prefix_caching": True,
            "logprobs_mode": "processed_logprobs",
            "disable_log_stats": True,
            "seed": options.seed,
        }
        if cpu:
            # bfloat16, the default for such models, is 2.4 times slower on cores without it, and too coarse for the canary.
            settings |= {"dtype": "float32", "enforce_eager": True}
            if options.max_model_len <= SHORT:
                settings["block_size"] = 32  # the default of 128 would share nothing of a short prompt
        try:
            self._engine = LLMEngine.from_engine_args(EngineArgs(**settings))
        except (ValueError, RuntimeError, OSError, AssertionError) as error:
            raise EngineError(
                f"{folder}: vLLM does not start: {str(error).strip().splitlines()[0]}"
            ) from error
        self.tokens = min(
            options.max_num_seqs * options.max_model_len, cache_tokens(self._engine.vllm_config.cache_config)
        )
        self._samples: dict[str, _Sample] = {}
        self._held: list[_Sample] = []
        self._serial = 0

    def submit(self, request: Request) -> None:
        """See `Engine`."""
        budget = self._admit(request)
        for index in range(request.n):
            self._add(_Sample(request, index, budget))

    def _add(self, sample: _Sample) -> None:
        sampling = sample.request.sampling
        self._serial += 1
        # No per-request seed: with one, vLLM on a CPU dies as soon as a prefill is chunked.
        params = self._params(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_tokens=sample.budget - len(sample.token_ids),
            logprobs=0,
            detokenize=False,
            ignore_eos=True,
            stop_token_ids=self._end,
            output_kind=self._delta,
        )
        sample.handle = self._engine.add_request(
            str(self._serial), {"prompt_token_ids": sample.request.prompt_ids + sample.token_ids}, params
        )
        self._samples[str(self._serial)] = sample

    def abort(self, request_id: str) -> None:
        """See `Engine`."""
        gone = {key: sample for key, sample in self._samples.items() if sample.request.id == request_id}
        self._drop(gone)

    def _drop(self, samples: dict[str, _Sample]) -> None:
        if not samples:
            return  # aborted before, or finished meanwhile
        self._engine.abort_request([sample.handle for sample in samples.values()], internal=True)
        for key in samples:
            del self._samples[key]

    def step(self) -> list[Segment]:
        """See `Engine`."""
        segments: list[Segment] = []
        for output in self._engine.step():
            sample = self._samples.get(output.request_id)
            if sample is None:
                continue
            if not sample.token_ids:
                self.prefix_tokens += output.num_cached_tokens or 0
            part = output.outputs[0]
            tokens = list(part.token_ids)
            logprobs = [
                entry[token].logprob for entry, token in zip(part.logprobs or (), tokens, strict=True)
            ]
            sample.token_ids += tokens
            finish = part.finish_reason
            if finish not in (None, "stop", "length"):
                finish = "abort"
            segments.append(Segment(sample.request.id, sample.index, tokens, logprobs, self._version, finish))
            if finish is not None:
                del self._samples[output.request_id]
        return segments

    def running(self) -> int:
        """See `Engine`."""
        return len(self._samples)

    def score(self, sequences: list[Scored]) -> list[list[float]]:
        """See `Engine`; prompt log-probabilities, which vLLM never serves from the prefix cache."""
        params = self._params(
            temperature=0.0, max_tokens=1, prompt_logprobs=0, detokenize=False, output_kind=self._final
        )
        order: dict[str, int] = {}
        for position, (prompt, answer) in enumerate(sequences):
            if len(prompt) + len(answer) >= self.max_model_len:
                raise EngineError(
                    f"cannot score {len(prompt) + len(answer)} tokens within {self.max_model_len}"
                )
            self._serial += 1
            order[str(self._serial)] = position
            self._engine.add_request(str(self._serial), {"prompt_token_ids": prompt + answer}, params)
        result: list[list[float]] = [[] for _ in sequences]
        while self._engine.has_unfinished_requests():
            for output in self._engine.step():
                position = order[output.request_id]
                answer = sequences[position][1]
                found = (output.prompt_logprobs or [])[-len(answer) :]
                result[position] = [
                    entry[token].logprob
                    for entry, token in zip(found, answer, strict=True)
                    if entry is not None
                ]
        return result

    def close(self) -> None:
        """See `Engine`."""
        self._drop(dict(self._samples))
        self._engine.engine_core.shutdown()

    def _install(self, weights: Weights) -> None:
        self._engine.collective_rpc("reload_weights", kwargs={"weights_iterator": list(weights.items())})

    def _suspend(self) -> None:
        self._held = list(self._samples.values())
        self._drop(dict(self._samples))

    def _resume(self) -> None:
        # vLLM keys cached blocks by tokens, not by weights.
        if not self._engine.reset_prefix_cache():
            raise EngineError("vLLM did not clear its prefix cache; blocks of the old weights may be in use")
        for sample in self._held:
            self._add(sample)
        self._held = []
