"""Text to tokens and back. Invariant: a prompt becomes the tokens the base model was trained on, none is added."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from services.runtime.models import ModelError


class Tokenizer:
    """The tokenizer of a model folder."""

    def __init__(self, folder: Path, *, chat: bool = False) -> None:
        """Load it; `chat` wraps prompts in the folder's chat template.

        Raises:
            ModelError: no tokenizer.json, or no chat template where one is needed.
        """
        from tokenizers import Tokenizer as Fast

        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ModelError(f"{folder}: no tokenizer.json; model.path must name a Hugging Face folder")
        try:
            self._fast: Any = Fast.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise ModelError(f"{path}: not a tokenizer: {error}") from error
        self._template: Any = _template(folder) if chat else None

    def encode(self, prompt: str, system: str = "") -> list[int]:
        """Ids of a rendered prompt; without a chat template, a system message stands before it on lines of its own."""
        if self._template is not None:
            messages = [{"role": "system", "content": system}] if system else []
            messages.append({"role": "user", "content": prompt})
            text = self._template.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        else:
            text = f"{system}\n\n{prompt}" if system else prompt
        return list(self._fast.encode(text, add_special_tokens=False).ids)

    def decode(self, token_ids: list[int]) -> str:
        """Text of sampled tokens without special ones; bytes that are no UTF-8 become U+FFFD."""
        return str(self._fast.decode(token_ids, skip_special_tokens=True))


def _template(folder: Path) -> Any:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder}: the tokenizer with the chat template does not load: {error}") from error
    if not tokenizer.chat_template:
        raise ModelError(f"{folder}: no chat template; set model.chat to false")
    return tokenizer
