"""A model that says fifty commands, and the task whose stages they are. Invariant: every stage draws a number of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models
from transformers import LlamaConfig, LlamaForCausalLM

from schemas.tasks import Task

STAGES, PAUSE_S = 50, 0.4
"""Number, and seconds that each takes at least."""


def command(number: int) -> str:
    """Adds its line, and a number of its own."""
    return (
        f"sleep {PAUSE_S}; mkdir -p n; cat /proc/sys/kernel/random/uuid > n/{number}; echo {number} >> trail"
    )


def long_task() -> Task:
    stages: list[dict[str, Any]] = []
    for number in range(STAGES):
        lines = "".join(f"{n}\n" for n in range(number + 1))
        checks = [{"kind": "file", "path": "trail", "text": lines}]
        stages.append({"name": f"s{number}", "checks": checks})
    return Task(id="long", domain="t.long", prompt="go", spec={"files": {}, "stages": stages}, group_size=1)


def speaker(folder: Path) -> Path:
    """A model that says the commands: each token is a line, and the only likely successor of the one before."""
    words = ["<bos>", "<eos>", "<pad>", "<unk>", "go", *(command(n) + "\n" for n in range(STAGES))]
    vocabulary = {word: n for n, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocab=vocabulary, unk_token="<unk>"))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(words[:4])
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        intermediate_size=64,
        max_position_embeddings=128,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "norm" not in name:
                weights.zero_()
        for n in range(len(words)):
            model.model.embed_tokens.weight[n, n] = 1.0
            following = n + 1 if 4 <= n < len(words) - 1 else 1
            model.lm_head.weight[following, n] = 10.0
        logits = model(torch.tensor([[4, 5, 6]])).logits[0, :2]
    model.save_pretrained(folder)
    found = logits.log_softmax(-1).gather(1, torch.tensor([[5], [6]]))[:, 0].tolist()
    (folder / "canary.json").write_text(
        json.dumps({"prompts": [[4]], "answers": [[5, 6]], "logprobs": [found]})
    )
    return folder
