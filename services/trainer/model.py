"""The language model as the trainer uses it. Invariant: float32 weights, and an output head of its own, in memory and on disk.

A tied head is untied because engines that reload weights in place keep the old head of a tied model without an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from services.runtime.models import ModelError
from services.trainer.batch import Micro

WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")


class LanguageModel:
    """A causal language model of transformers: decoder, then a linear head on the places that matter."""

    def __init__(self, model: Any) -> None:
        """Untie and take over `model`, a `PreTrainedModel` with a language-model head.

        Raises:
            ModelError: the logits are not simply the head's output.
        """
        for setting in ("final_logit_softcapping", "logit_scale", "logits_scaling"):
            if getattr(model.config, setting, None) not in (None, 1.0):
                raise ModelError(
                    f"{model.config.model_type}: models with {setting} are not supported; use a Llama-like model"
                )
        untie(model)
        self.module: nn.Module = model
        self.config: Any = model.config
        self._decoder: Any = model.base_model
        self._head: Any = model.get_output_embeddings()

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.module.parameters()).device

    @property
    def vocabulary(self) -> int:
        """Number of token ids."""
        return int(self._head.weight.shape[0])

    def parameters(self) -> Iterator[nn.Parameter]:
        """Trained parameters."""
        return self.module.parameters()

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Trained parameters by name."""
        return self.module.named_parameters()

    def weights(self) -> dict[str, Tensor]:
        """All parameters on the CPU, contiguous, by the names the Hugging Face format uses."""
        return {name: value.detach().cpu().contiguous() for name, value in self.module.named_parameters()}

    def load(self, weights: dict[str, Tensor]) -> None:
        """Take over weights that `weights` returned.

        Raises:
            ModelError: other names or shapes.
        """
        try:
            self.module.load_state_dict(weights, strict=True)
        except RuntimeError as error:
            raise ModelError(
                f"the weights do not fit the model: {' '.join(str(error).split())[:300]}"
            ) from error

    def logits(self, micro: Micro) -> Tensor:
        """Logits at the places that predict the trained tokens, [n, vocabulary]."""
        hidden: Tensor = self._decoder(
            input_ids=micro.input_ids,
            attention_mask=micro.mask,
            position_ids=micro.position_ids,
            use_cache=False,
        ).last_hidden_state
        logits: Tensor = self._head(hidden.flatten(0, 1).index_select(0, micro.sources))
        return logits


def untie(model: Any) -> None:
    """Give the output head its own copy of the weights and say so in the configuration."""
    head, embeddings = model.get_output_embeddings(), model.get_input_embeddings()
    if head.weight is embeddings.weight:
        head.weight = nn.Parameter(embeddings.weight.detach().clone())
    model.config.tie_word_embeddings = False
    model.config.architectures = [type(model).__name__]


def load_model(folder: Path, device: torch.device | None = None) -> LanguageModel:
    """The model in a Hugging Face folder, in float32, ready to train.

    Raises:
        ModelError: no such folder, no configuration, no weights, or weights that do not fit.
    """
    if not folder.is_dir():
        raise ModelError(f"{folder}: no such model folder; set model.path to a Hugging Face folder")
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder}: config.json is missing; a Hugging Face model folder was expected")
    if not any((folder / name).is_file() for name in WEIGHTS):
        raise ModelError(f"{folder}: no weights (model.safetensors); build or copy them before training")
    quiet = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, local_files_only=True, output_loading_info=True
        )
    except (OSError, ValueError, KeyError, RuntimeError, TypeError) as error:
        raise ModelError(f"{folder}: cannot be loaded: {' '.join(str(error).split())[:300]}") from error
    except Exception as error:
        # The safetensors reader has its own exception, which is no subclass of the above.
        if type(error).__name__ != "SafetensorError":
            raise
        raise ModelError(f"{folder}: the weight file is damaged: {error}") from error
    finally:
        transformers_logging.set_verbosity(quiet)
    if report["missing_keys"]:
        missing = ", ".join(sorted(report["missing_keys"])[:3])
        raise ModelError(f"{folder}: the weights lack {missing}; the folder is incomplete")
    model.eval()
    return LanguageModel(model.to(device or torch.device("cpu")))


def pick_device(name: str) -> torch.device:
    """The device that a setting means: `auto` is the GPU if there is one.

    Raises:
        ModelError: `cuda` where there is none.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise ModelError(
            "trainer.device is cuda, but this machine shows no GPU to torch; set it to auto or cpu"
        )
    return torch.device("cuda" if name == "cuda" or (name == "auto" and torch.cuda.is_available()) else "cpu")
