"""A random model of a few thousand parameters, and events as samplers and verifiers write them."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import msgspec
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from schemas.ids import group_id, lease_id, trajectory_id
from schemas.rewards import TrajectoryVerified
from schemas.run import RunConfig, Trainer, Training
from schemas.tasks import Task
from schemas.trajectories import Span, TrajectoryCompleted, content_digest
from schemas.verdicts import Part, infra
from schemas.verdicts import scored as verdict
from services.trainer import settings
from services.trainer.batch import Answer, Unit
from services.trainer.model import LanguageModel

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

VOCABULARY = 61


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def model() -> LanguageModel:
    return LanguageModel(llama())


@pytest.fixture
def make_model() -> Callable[[], LanguageModel]:
    return lambda: LanguageModel(llama())


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A model folder with a tied head, as many base models come."""
    folder = tmp_path / "base-model"
    llama(tied=True).save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps({"added_tokens": [{"id": 0, "special": True}]}))
    return folder


@pytest.fixture
def chosen(base: Path, tmp_path: Path) -> settings.Settings:
    config = RunConfig(
        name="r",
        training=Training(steps=4, groups_per_step=2),
        trainer=Trainer(lr=1e-2, warmup=1, device="cpu", threads=1),
    )
    run = settings.of(config, tmp_path / "run")
    return msgspec.structs.replace(run, model=str(base))


@pytest.fixture
def make_units() -> Callable[[int], list[Unit]]:
    return units


def llama(*, tied: bool = False) -> LlamaForCausalLM:
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=128,
        tie_word_embeddings=tied,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(
                4.0 if parameter.ndim > 1 else 1.0
            )  # Far enough from uniform that a wrong mask shows.
    return model


def units(seed: int, groups: int = 5) -> list[Unit]:
    rng = random.Random(seed)

    def answer() -> Answer:
        size = rng.randint(1, 9)
        return Answer(
            tokens=tuple(rng.randrange(VOCABULARY) for _ in range(size)),
            mu=tuple(rng.uniform(-6.0, -2.0) for _ in range(size)),
            advantage=rng.uniform(-1.5, 1.5),
        )

    return [
        Unit(
            prompt=tuple(rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 12))),
            answers=tuple(answer() for _ in range(rng.randint(1, 5))),
            temperature=rng.choice((1.0, 1.0, 0.7)),
        )
        for _ in range(groups)
    ]


def events(
    number: int,
    *,
    size: int = 4,
    domain: str = "d.one",
    version: int = 0,
    faults: frozenset[int] = frozenset(),
    purpose: str = "train",
) -> tuple[list[TrajectoryCompleted], list[TrajectoryVerified]]:
    """The trajectories and verdicts of one group; members in `faults` have an infrastructure verdict."""
    rng = random.Random(number)
    task = Task(id=f"task-{number}", domain=domain, prompt="p", purpose=purpose)  # type: ignore[arg-type]
    group, lease = group_id(task.id, 1), lease_id(task.id, 1)
    prompt = [rng.randrange(VOCABULARY) for _ in range(5)]
    samples, verdicts = [], []
    for index in range(size):
        length = rng.randint(1, 6)
        tokens = [rng.randrange(VOCABULARY) for _ in range(length)]
        sample = TrajectoryCompleted(
            trajectory_id=trajectory_id(task.id, 1, index),
            task=task,
            attempt=1,
            group_id=group,
            group_size=size,
            index=index,
            lease_id=lease,
            prompt_ids=prompt,
            token_ids=tokens,
            logprobs=[rng.uniform(-5.0, -3.0) for _ in tokens],
            spans=(Span(version=version, start=0, end=length),),
            finish="stop",
            text=f"{number}/{index}",
        )
        score = rng.choice((0.0, 0.25, 1.0)) if index else 0.5
        samples.append(sample)
        verdicts.append(
            TrajectoryVerified(
                trajectory_id=sample.trajectory_id,
                task_id=task.id,
                domain=domain,
                purpose=purpose,  # type: ignore[arg-type]
                attempt=1,
                group_id=group,
                group_size=size,
                index=index,
                lease_id=lease,
                content=content_digest(tokens, sample.text),
                verdict=infra("lost")
                if index in faults
                else verdict([Part(name="x", weight=1.0, score=score)]),
            )
        )
    return samples, verdicts


@pytest.fixture
def make_events() -> Callable[..., tuple[list[TrajectoryCompleted], list[TrajectoryVerified]]]:
    return events
