"""Both engines against transformers, on the very tokens they sampled. One vLLM serves the module: it starts slowly."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from schemas.tasks import Sampling
from services.sampler import canary
from services.sampler.engines.port import Engine, PromptTooLongError, Request, VersionRefusedError
from services.sampler.engines.torch_engine import TorchEngine
from services.sampler.engines.vllm_engine import VllmEngine, VllmOptions, cache_tokens
from services.sampler.spans import Assembly

Checkpoint = Any  # the dataclass in conftest.py, which no module can import

pytestmark = pytest.mark.integration
PROMPT = list(range(70))
EXACT = 1e-4


@contextmanager
def without_trimesh() -> Iterator[None]:
    """vLLM looks at every object of every loaded module; trimesh's stand-ins for absent packages raise when looked at.

    No service loads both; a test run in one process does.
    """
    hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "trimesh"}
    try:
        yield
    finally:
        sys.modules.update(hidden)


@pytest.fixture(scope="module")
def vllm(checkpoints: list[Checkpoint]) -> Iterator[VllmEngine]:
    environment = dict(os.environ)
    options = VllmOptions(max_model_len=160, max_num_seqs=64, kv_cache_mib=64, threads=1, seed=7)
    with without_trimesh():
        engine = VllmEngine(checkpoints[0].folder, options)
    yield engine
    engine.close()
    os.environ.clear()
    os.environ.update(environment)


@pytest.fixture
def transformers(checkpoints: list[Checkpoint]) -> TorchEngine:
    return TorchEngine(checkpoints[0].folder, max_model_len=160, max_num_seqs=64, threads=1, seed=7)


@pytest.fixture(params=["vllm", "transformers"])
def engine(request: pytest.FixtureRequest, checkpoints: list[Checkpoint]) -> Engine:
    made: Engine = request.getfixturevalue(request.param)
    made.load(0, checkpoints[0].folder)
    return made


def run(
    engine: Engine, sampling: Sampling, n: int = 8, reload: tuple[int, Path] | None = None
) -> list[Assembly]:
    engine.submit(Request("r", PROMPT, n, sampling))
    samples = [Assembly() for _ in range(n)]
    for step in range(10_000):
        if not engine.running():
            return samples
        if step == 10 and reload is not None:
            engine.load(*reload)
        for segment in engine.step():
            samples[segment.index].add(segment, 0.0)
    raise AssertionError("the engine does not come to an end")


def worst(samples: list[Assembly], versions: list[Checkpoint], temperature: float = 1.0) -> float:
    """Largest difference to transformers, each token under the version its span names."""
    found = 0.0
    for sample in samples:
        for span in sample.spans():
            wanted = versions[span.version].logprobs(PROMPT, sample.token_ids, temperature)
            pairs = zip(wanted[span.start : span.end], sample.logprobs[span.start : span.end], strict=True)
            found = max(found, *(abs(a - b) for a, b in pairs))
    return found


def test_both_engines_know_how_many_tokens_they_hold(vllm: VllmEngine, transformers: TorchEngine) -> None:
    assert transformers.tokens == 64 * 160, "a row for each sequence"
    cache = vllm._engine.vllm_config.cache_config
    assert cache_tokens(cache) >= 160, "vLLM does not start without room for one sequence"
    assert vllm.tokens == min(64 * 160, cache_tokens(cache))


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_those_of_transformers(
    engine: Engine, checkpoints: list[Checkpoint], temperature: float
) -> None:
    samples = run(engine, Sampling(temperature=temperature, max_tokens=30))
    assert all(sample.finish in {"stop", "length"} for sample in samples)
    assert len({tuple(sample.token_ids) for sample in samples}) == len(samples), "samples differ"
    assert worst(samples, checkpoints, temperature) < EXACT


def test_greedy_agrees_between_engines_and_with_a_nucleus_of_one_token(
    vllm: VllmEngine, transformers: TorchEngine, checkpoints: list[Checkpoint]
) -> None:
    answers = []
    for engine in (vllm, transformers):
        engine.load(0, checkpoints[0].folder)
        greedy = run(engine, Sampling(temperature=0.0, max_tokens=40), n=2)
        assert worst(greedy, checkpoints) < EXACT
        narrow = run(engine, Sampling(top_p=1e-6, max_tokens=40), n=1)
        assert narrow[0].token_ids == greedy[0].token_ids == greedy[1].token_ids
        answers.append(greedy[0].token_ids)
    assert answers[0] == answers[1]


def test_a_group_shares_its_prefix(vllm: VllmEngine, checkpoints: list[Checkpoint]) -> None:
    vllm.load(0, checkpoints[0].folder)
    before = vllm.prefix_tokens
    run(vllm, Sampling(max_tokens=2), n=8)
    assert vllm.prefix_tokens - before == 7 * 64, "two blocks of 32 for each sibling of the first"


def test_a_reload_in_flight_changes_version_and_logprobs_token_by_token(
    engine: Engine, checkpoints: list[Checkpoint]
) -> None:
    samples = run(engine, Sampling(max_tokens=40), reload=(1, checkpoints[1].folder))
    assert engine.version() == 1
    both = [sample for sample in samples if [span.version for span in sample.spans()] == [0, 1]]
    assert both, "no sample was in flight at the reload"
    assert worst(samples, checkpoints) < EXACT
    swapped = [checkpoints[1], checkpoints[0]]
    assert worst(both, swapped) > 1.0, "the reference must tell the versions apart"


def test_the_prefix_cache_does_not_survive_a_reload(engine: Engine, checkpoints: list[Checkpoint]) -> None:
    run(engine, Sampling(max_tokens=2))
    engine.load(1, checkpoints[1].folder)
    assert worst(run(engine, Sampling(max_tokens=20)), checkpoints) < EXACT


def test_scores_are_those_of_transformers(engine: Engine, checkpoints: list[Checkpoint]) -> None:
    (found,) = engine.score([(PROMPT, [3, 1, 4, 1, 5])])
    assert found == pytest.approx(checkpoints[0].logprobs(PROMPT, [3, 1, 4, 1, 5]), abs=EXACT)


def test_the_canary_accepts_its_version_and_refuses_a_corrupted_one_in_flight(
    engine: Engine, checkpoints: list[Checkpoint], corrupted: Checkpoint
) -> None:
    engine.load(1, checkpoints[1].folder, canary.checker(canary.read(checkpoints[1].folder), 1e-3, 160))
    engine.submit(Request("r", PROMPT, 4, Sampling(max_tokens=30)))
    samples = [Assembly() for _ in range(4)]
    for _ in range(5):
        for segment in engine.step():
            samples[segment.index].add(segment, 0.0)
    with pytest.raises(VersionRefusedError, match="canary"):
        engine.load(3, corrupted.folder, canary.checker(canary.read(corrupted.folder), 1e-3, 160))
    assert engine.version() == 1
    while engine.running():
        for segment in engine.step():
            samples[segment.index].add(segment, 0.0)
    assert {span.version for sample in samples for span in sample.spans()} == {1}
    assert worst(samples, checkpoints) < EXACT


def test_a_folder_that_does_not_fit_is_refused_before_anything_changes(
    engine: Engine, checkpoints: list[Checkpoint], tmp_path: Path
) -> None:
    with pytest.raises(VersionRefusedError, match=r"no model\.safetensors"):
        engine.load(9, tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"truncated")
    with pytest.raises(VersionRefusedError, match="cannot be read"):
        engine.load(9, tmp_path)
    assert engine.version() == 0
    assert worst(run(engine, Sampling(max_tokens=5), n=1), checkpoints) < EXACT


def test_long_prompts_are_refused_and_answers_end_at_the_context(engine: Engine) -> None:
    with pytest.raises(PromptTooLongError):
        engine.submit(Request("long", [1] * 160, 2, Sampling()))
    engine.submit(Request("tight", [1] * 157, 1, Sampling(max_tokens=50)))
    tokens = [
        token for _ in range(20) if engine.running() for part in engine.step() for token in part.token_ids
    ]
    assert 1 <= len(tokens) <= 3
    assert not engine.running()


def test_an_aborted_group_leaves_nothing_behind(engine: Engine) -> None:
    engine.submit(Request("a", PROMPT, 4, Sampling(max_tokens=20)))
    engine.submit(Request("b", PROMPT, 1, Sampling(max_tokens=3)))
    engine.step()
    engine.abort("a")
    names = {part.request_id for _ in range(10) if engine.running() for part in engine.step()}
    assert names <= {"b"}
    assert not engine.running()
