"""The tiny model and its folder. Invariant: it loads offline in transformers and vLLM; token n is byte n.

The tokenizer adds nothing by itself: a sequence is the prompt's bytes, the answer's bytes, the end token.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.generation import GenerationConfig

END_ID = 256
PAD_ID = 257
END_TOKEN = "<|end|>"  # noqa: S105
PAD_TOKEN = "<|pad|>"  # noqa: S105
VOCABULARY = 258
LONGEST = 1024
"""Positions the configuration allows; training saw the first hundred."""


def byte_symbols() -> list[str]:
    """The printable symbol of each byte, as the byte-level pre-tokenizer writes it (the table of GPT-2)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    symbols = {byte: chr(byte) for byte in printable}
    spare = (chr(0x100 + n) for n in range(256))
    return [symbols[byte] if byte in symbols else next(spare) for byte in range(256)]


def tokenizer() -> PreTrainedTokenizerFast:
    """Byte level without merges: any text round-trips, one token a byte."""
    vocabulary = {symbol: byte for byte, symbol in enumerate(byte_symbols())}
    raw = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens([AddedToken(END_TOKEN, special=True), AddedToken(PAD_TOKEN, special=True)])
    return PreTrainedTokenizerFast(
        tokenizer_object=raw,
        eos_token=END_TOKEN,
        pad_token=PAD_TOKEN,
        clean_up_tokenization_spaces=False,
        model_max_length=LONGEST,
    )


def architecture() -> LlamaConfig:
    """0.92 M parameters; the head is untied, so that a reload of the weights refreshes it in every engine."""
    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=LONGEST,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=END_ID,
        pad_token_id=PAD_ID,
        dtype="float32",
    )


def fresh(seed: int) -> LlamaForCausalLM:
    """A model with seeded random weights."""
    torch.manual_seed(seed)
    return LlamaForCausalLM(architecture())


def write(model: LlamaForCausalLM, folder: Path) -> None:
    """Write the configurations, `model.safetensors` (float32) and the tokenizer's files into `folder`."""
    model.generation_config = GenerationConfig(eos_token_id=END_ID, pad_token_id=PAD_ID, do_sample=True)
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    # The name that every release of transformers knows, in place of the one that only the newest writes.
    place = folder / "tokenizer_config.json"
    settings = json.loads(place.read_bytes()) | {"tokenizer_class": "PreTrainedTokenizerFast"}
    place.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    # safetensors makes its file private; what ships must be readable by whoever runs the sampler.
    for file in folder.iterdir():
        file.chmod(0o644)
