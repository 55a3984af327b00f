"""Tiny random models with tokenizer and canary, as checkpoints of a run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

from schemas.ids import digest
from schemas.tasks import PolicyRef

EOS = 257


@dataclass
class Checkpoint:
    """One version: its folder and the model itself, as the reference."""

    version: int
    folder: Path
    model: LlamaForCausalLM

    def logprobs(self, prompt: list[int], answer: list[int], temperature: float = 1.0) -> list[float]:
        with torch.no_grad():
            logits = self.model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1] / temperature
        found: list[float] = logits.log_softmax(-1).gather(1, torch.tensor(answer)[:, None])[:, 0].tolist()
        return found

    def policy(self) -> PolicyRef:
        weights = (self.folder / "model.safetensors").read_bytes()
        return PolicyRef(version=self.version, uri=str(self.folder), digest=digest(weights))


def make(folder: Path, version: int) -> Checkpoint:
    torch.manual_seed(version)
    config = LlamaConfig(
        vocab_size=260,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        intermediate_size=128,
        max_position_embeddings=512,
        initializer_range=0.1,
        tie_word_embeddings=False,
        bos_token_id=256,
        eos_token_id=EOS,
        pad_token_id=258,
    )
    model = LlamaForCausalLM(config).eval()
    model.save_pretrained(folder)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<bos>", "<eos>", "<pad>", "<unk>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    checkpoint = Checkpoint(version, folder, model)
    prompts, answers = [[1, 2, 3, 4], [9, 8, 7]], [[5, 6, 7], [100, 200]]
    logprobs = [checkpoint.logprobs(prompt, answer) for prompt, answer in zip(prompts, answers, strict=True)]
    (folder / "canary.json").write_text(
        json.dumps({"prompts": prompts, "answers": answers, "logprobs": logprobs})
    )
    return checkpoint


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> list[Checkpoint]:
    """Versions 0 to 2 of one architecture with unrelated weights."""
    root = tmp_path_factory.mktemp("checkpoints")
    return [make(root / f"v{version:06d}", version) for version in range(3)]


@pytest.fixture(scope="session")
def corrupted(checkpoints: list[Checkpoint], tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """Version 3: the canary of version 1 beside the weights of version 2."""
    folder = tmp_path_factory.mktemp("corrupted") / "v000003"
    made = make(folder, 2)
    made.version = 3
    (folder / "canary.json").write_bytes((checkpoints[1].folder / "canary.json").read_bytes())
    return made
