"""Checkpoints, resuming, and what a base model must be."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from schemas.ids import digest
from services.runtime.errors import one_line
from services.runtime.models import ModelError
from services.trainer.assemble import Assembler
from services.trainer.checkpoint import Store, special_tokens
from services.trainer.model import load_model, pick_device
from services.trainer.place import Place
from services.trainer.session import Diverged, open_session

if TYPE_CHECKING:
    from services.trainer.settings import Settings

Make = Callable[..., tuple[list[Any], list[Any]]]


class Run:
    """A trainer without its broker: reads a recorded list of events by offset, as the service reads the log."""

    def __init__(self, chosen: Settings, log: list[Any]) -> None:
        self.chosen, self.log = chosen, log
        self.session, self.new = open_session(chosen, {})
        record = self.session.record
        self.assembler = Assembler(
            vocabulary=self.session.vocabulary,
            max_staleness=8,
            timeout_s=60.0,
            version=self.session.version,
            saved=record.assembly,
        )
        self.offset = record.offsets.get("log/0", 0)
        self.trained: list[str] = []

    def steps(self, count: int) -> Run:
        for _ in range(count):
            while not self.assembler.due(self.chosen.groups_per_step):
                event, place = self.log[self.offset], Place(self.offset, "log", 0, self.offset)
                add = self.assembler.add_sample if hasattr(event, "token_ids") else self.assembler.add_verdict
                add(event, place, 0.0)
                self.offset += 1
            groups = self.assembler.take(self.chosen.groups_per_step, self.session.version)
            metrics = self.session.train(groups)
            self.trained += [group.id for group in groups]
            positions = {"log/0": self.offset}
            self.metrics = self.session.save(
                offsets=self.assembler.low_water(positions),
                assembly=self.assembler.save(positions),
                used_s=1.5,
                final=self.session.version >= self.chosen.steps,
                metrics=metrics,
            )
        return self


@pytest.fixture
def log(make_events: Make) -> list[Any]:
    """Eight groups whose records overlap, one of them with a masked member, one without variance."""
    lanes = []
    for number in range(8):
        samples, verdicts = make_events(number, faults=frozenset({2}) if number == 3 else frozenset())
        lanes.append([event for pair in zip(samples, verdicts, strict=True) for event in pair])
    return [lanes[lane][i] for start in range(0, 8, 4) for i in range(8) for lane in range(start, start + 4)]


@pytest.mark.parametrize("minibatches", [1, 2])
def test_a_resumed_run_is_bit_equal(
    chosen: Settings, log: list[Any], tmp_path: Path, minibatches: int
) -> None:
    hyper = msgspec.structs.replace(chosen.hyper, minibatches=minibatches)
    chosen = msgspec.structs.replace(chosen, hyper=hyper)
    whole = Run(msgspec.structs.replace(chosen, folder=tmp_path / "whole"), log).steps(4)
    first = Run(chosen, log).steps(2)
    torch.manual_seed(12345)  # A new process has other random state.
    second = Run(chosen, log)
    assert not second.new
    second.steps(2)
    assert first.trained + second.trained == whole.trained
    assert second.session.record.digest == whole.session.record.digest
    assert second.session.record.optimiser_digest == whole.session.record.optimiser_digest
    assert second.session.record.scales == whole.session.record.scales
    assert second.session.record.final


def test_version_zero_is_the_base_with_a_head_of_its_own(chosen: Settings, base: Path) -> None:
    session, new = open_session(chosen, {})
    folder = Path(session.policy.uri)
    assert new
    assert session.policy.version == 0
    assert session.policy.digest == digest((folder / "model.safetensors").read_bytes())
    assert json.loads((folder / "config.json").read_text())["tie_word_embeddings"] is False
    assert (folder / "tokenizer.json").read_bytes() == (base / "tokenizer.json").read_bytes()
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    plain = [AutoModelForCausalLM.from_pretrained(path)(ids).logits for path in (base, folder)]
    assert torch.equal(*plain)
    assert "lm_head.weight" in load_file(folder / "model.safetensors")


def test_the_canary_is_what_the_weights_beside_it_say(chosen: Settings, log: list[Any]) -> None:
    run = Run(chosen, log)
    first = json.loads((Path(run.session.policy.uri) / "canary.json").read_text())
    run.steps(1)
    folder = Path(run.session.policy.uri)
    canary = json.loads((folder / "canary.json").read_text())
    model = AutoModelForCausalLM.from_pretrained(folder)
    for prompt, answer, logprobs in zip(
        canary["prompts"], canary["answers"], canary["logprobs"], strict=True
    ):
        logits = torch.log_softmax(model(torch.tensor([prompt + answer])).logits[0], -1)
        expected = [logits[len(prompt) - 1 + place, token].item() for place, token in enumerate(answer)]
        assert logprobs == pytest.approx(expected, abs=1e-4)
        assert 0 not in prompt, "a special token"
    assert first["answers"] == canary["answers"]
    moved = max(
        abs(a - b)
        for x, y in zip(first["logprobs"], canary["logprobs"], strict=True)
        for a, b in zip(x, y, strict=True)
    )
    assert moved > 0.02, "an engine that kept the old weights would pass"


def test_figures_of_a_step(chosen: Settings, log: list[Any]) -> None:
    metrics = Run(chosen, log).steps(2).metrics
    wanted = {
        "loss",
        "reward_mean",
        "reward/d.one",
        "layer/unknown",
        "tokens",
        "samples",
        "groups",
        "degenerate",
    }
    wanted |= {
        "staleness_mean",
        "staleness_max",
        "train_s",
        "save_s",
        "grad_norm",
        "entropy",
        "kl",
        "ratio_max",
        "lr",
    }
    assert wanted | {"logprob_diff_mean", "logprob_diff_max"} <= metrics.keys()
    assert metrics["groups"] == 2.0
    assert metrics["samples"] == 7.0, "one of eight members is masked"
    assert metrics["masked"] == 1.0
    assert metrics["staleness_max"] == 1.0


def test_damaged_checkpoints_are_named_and_passed_over(
    chosen: Settings, log: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    run = Run(chosen, log).steps(2)
    store = Store(chosen.checkpoints, 3)
    weights = store.folder(2) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-7])
    (store.root / "v000007").mkdir()
    (store.root / ".writing-v000003").mkdir()
    with caplog.at_level(logging.WARNING):
        again = Run(chosen, log)
    assert again.session.version == 1
    assert [record.getMessage() for record in caplog.records if "v000002" in record.getMessage()] == [
        f"{store.folder(2)}: passed over: model.safetensors is not the file that was written"
    ]
    assert "v000007" in caplog.text
    again.steps(1)
    assert again.session.record.digest == run.session.record.digest
    assert store.newest() is not None


def test_the_newest_the_base_and_the_last_are_kept(chosen: Settings, log: list[Any]) -> None:
    chosen = msgspec.structs.replace(chosen, keep_checkpoints=2)
    run = Run(chosen, log).steps(4)
    assert Store(chosen.checkpoints, 2).versions() == [0, 3, 4]
    run.session.finish()
    newest = Store(chosen.checkpoints, 2).newest()
    assert newest is not None
    assert newest.record.final


def test_a_run_of_no_steps_ends_with_version_zero(chosen: Settings) -> None:
    session, _ = open_session(msgspec.structs.replace(chosen, steps=0), {})
    assert session.record.final


def test_weights_that_are_not_finite_are_not_published(chosen: Settings, log: list[Any]) -> None:
    run = Run(chosen, log)
    next(run.session._learner.model.parameters()).data[0, 0] = float("nan")
    with pytest.raises(Diverged, match="no longer finite"):
        run.steps(1)
    assert Store(chosen.checkpoints, 3).versions() == [0]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "model.safetensors").unlink(), "no weights"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"\x10" * 40), "damaged"),
        (lambda folder: (folder / "config.json").unlink(), "config.json is missing"),
        (lambda folder: (folder / "config.json").write_text("{"), "cannot be loaded"),
    ],
)
def test_a_folder_that_is_no_model_gets_one_clear_line(
    base: Path, damage: Callable[[Path], Any], message: str
) -> None:
    damage(base)
    with pytest.raises(ModelError, match=message) as caught:
        load_model(base)
    line = one_line(caught.value)
    assert str(base) in line
    assert "\n" not in line


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such model folder"):
        load_model(tmp_path / "none")


def test_the_device_is_the_one_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device("auto").type == "cpu"
    with pytest.raises(ModelError, match="no GPU"):
        pick_device("cuda")


def test_special_tokens_come_from_configuration_and_tokenizer() -> None:
    tokenizer = json.dumps(
        {"added_tokens": [{"id": 4, "special": True}, {"id": 5, "special": False}]}
    ).encode()
    assert special_tokens({"eos_token_id": [1, 2], "bos_token_id": None}, {"tokenizer.json": tokenizer}) == {
        1,
        2,
        4,
    }
