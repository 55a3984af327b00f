"""The tiny model: folder, tokenizer, loss, loop and command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from schemas.cards import LAYERS
from services.trainer.base import __main__ as command
from services.trainer.base import manifest, model, report
from services.trainer.base.demonstrations import sources
from services.trainer.base.packing import batches
from services.trainer.base.settings import Build
from services.trainer.base.train import Progress, answer_loss, learning_rate, train

DOMAINS = Path(__file__).parents[3] / "domains"
SMALL = Build(steps=3, rows=2, row_tokens=96, warmup_steps=1)


@pytest.mark.parametrize("text", ["", "py l first 3>", "a  b\t\n c", "größe €4 🙂 \x00\x7f", " lead", "\r\n"])
def test_tokens_are_bytes_and_nothing_is_added(text: str) -> None:
    tokens = model.tokenizer()
    ids = tokens(text)["input_ids"]
    assert ids == list(text.encode())
    assert tokens.decode(ids) == text


def test_the_folder_loads_offline(tmp_path: Path) -> None:
    made = model.fresh(5)
    model.write(made, tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, local_files_only=True)
    tokens = AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
    assert isinstance(loaded, LlamaForCausalLM)
    assert loaded.dtype == torch.float32
    assert tokens("ab")["input_ids"] == [97, 98]
    assert tokens.eos_token_id == model.END_ID
    assert loaded.generation_config.eos_token_id == model.END_ID
    ids = torch.tensor([[1, 2, 3]])
    assert torch.equal(loaded(ids).logits, made.eval()(ids).logits)
    assert sum(parameter.numel() for parameter in loaded.parameters()) < 3_000_000
    assert all(file.stat().st_mode & 0o044 == 0o044 for file in tmp_path.iterdir())


def test_packing_does_not_change_the_loss() -> None:
    """The packed loss equals the mean over the same answer tokens, each sample alone in the model."""
    pairs = [("ab>", "xyz"), ("q>", "1"), ("long prompt>", "answer"), ("c>", "dd")]
    made = model.fresh(1).eval()
    batch = next(batches(iter([*pairs, *[("x" * 30, "y")] * 4]), rows=1, tokens=40, end=256, pad=257))
    assert batch.segments.max() == len(pairs) - 1
    total, tokens = 0.0, 0
    for prompt, answer in pairs:
        ids = torch.tensor([[*prompt.encode(), *answer.encode(), 256]])
        logits = made(ids).logits[0, len(prompt) - 1 : -1]
        loss = torch.nn.functional.cross_entropy(logits, ids[0, len(prompt) :], reduction="sum")
        total += loss.item()
        tokens += len(answer) + 1
    assert batch.targets.sum() == tokens
    assert answer_loss(made, batch).item() == pytest.approx(total / tokens, rel=1e-5)


def test_training_is_deterministic_and_learns() -> None:
    origin = sources(DOMAINS, LAYERS)
    losses: list[list[float]] = [[], []]

    def note(run: list[float]) -> Progress:
        return lambda _step, loss, _model: run.append(loss)

    made = [train(origin, SMALL, note(run)) for run in losses]
    assert losses[0] == losses[1]
    assert len(losses[0]) == SMALL.steps
    for one, other in zip(made[0].parameters(), made[1].parameters(), strict=True):
        assert torch.equal(one, other)
    assert losses[0][-1] < losses[0][0]


def test_the_rate_warms_up_and_decays_to_nearly_nothing() -> None:
    build = Build(steps=100, warmup_steps=10, learning_rate=1.0)
    rates = [learning_rate(step, build) for step in range(100)]
    assert rates[:2] == [0.1, 0.2]
    assert max(rates) == 1.0
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert 0.0 < rates[-1] < 0.02


def test_greedy_sampling_equals_one_by_one_decoding() -> None:
    """Left padding changes nothing: a short and a long prompt in one batch give what each gives alone."""
    made = model.fresh(3).eval()
    prompts = ["a>", "a much longer prompt>"]
    together = report.answers(made, prompts, greedy=True, max_tokens=6, seed=0)
    alone = [report.answers(made, [p], greedy=True, max_tokens=6, seed=0)[0] for p in prompts]
    assert together == alone


def test_the_command_builds_reports_and_replaces(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "Build", lambda **told: Build(**{**told, "rows": 1, "row_tokens": 96}))
    monkeypatch.setattr(command, "sources", lambda folder, layers: sources(folder, layers)[:2])
    out = tmp_path / "tiny"
    arguments = [
        "--out",
        str(out),
        "--steps",
        "2",
        "--prompts",
        "1",
        "--domains",
        str(DOMAINS),
        "--threads",
        "1",
    ]
    assert command.main(arguments) == 0
    assert command.main(arguments) == 0  # replaced
    record = json.loads((out / "MANIFEST.json").read_bytes())
    assert record["sha256"] == manifest.digest(out / "model.safetensors")
    assert record["sha256"] in (out / "README.md").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]
    capsys.readouterr()
    assert command.main([*arguments, "--report"]) == 0
    assert "| mean |" in capsys.readouterr().out


def test_a_folder_that_holds_something_else_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    assert command.main(["--out", str(tmp_path), "--domains", str(DOMAINS)]) == 2
    assert "holds no model" in capsys.readouterr().err
    assert (tmp_path / "mine.txt").read_text() == "keep"


def test_the_shipped_base_is_the_one_its_manifest_names() -> None:
    shipped = DOMAINS / "models" / "tiny"
    record = json.loads((shipped / "MANIFEST.json").read_bytes())
    assert manifest.digest(shipped / "model.safetensors") == record["sha256"]
    assert (shipped / "model.safetensors").stat().st_size < 8_000_000
    assert sorted(record["domains"]) == sorted(source.domain for source in sources(DOMAINS, LAYERS))
    shares = np.array([[row["exact"], row["best"]] for row in record["rows"]])
    # Often wrong, yet a group of eight nearly always has something to learn from.
    assert 0.1 < shares[:, 0].mean() < 0.4
    assert shares[:, 1].mean() > 0.7
