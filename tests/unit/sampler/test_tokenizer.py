"""Prompts to tokens and back, with a byte-level tokenizer made here."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer as Fast
from tokenizers import decoders, models, pre_tokenizers, processors

from services.runtime.models import ModelError
from services.sampler.tokenizer import Tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    fast = Fast(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    fast.add_special_tokens(["<bos>", "<eos>"])
    fast.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 256)])
    fast.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


@pytest.mark.parametrize("text", ["2 + 3 = ", "Größe: 5 µm\n", "日本 🙂"])
def test_a_prompt_gets_no_added_tokens_and_comes_back(folder: Path, text: str) -> None:
    tokenizer = Tokenizer(folder)
    ids = tokenizer.encode(text)
    assert len(ids) == len(text.encode())
    assert tokenizer.decode(ids) == text


def test_special_tokens_and_broken_utf8_do_not_reach_the_text(folder: Path) -> None:
    tokenizer = Tokenizer(folder)
    assert tokenizer.decode([*tokenizer.encode("ok"), 257]) == "ok"
    assert tokenizer.decode(tokenizer.encode("é")[:1]) == "\ufffd"


def test_a_system_message_stands_before_the_prompt(folder: Path) -> None:
    tokenizer = Tokenizer(folder)
    assert tokenizer.decode(tokenizer.encode("question", "rules")) == "rules\n\nquestion"


def test_a_folder_without_tokenizer_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no tokenizer\.json"):
        Tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match="not a tokenizer"):
        Tokenizer(tmp_path)
