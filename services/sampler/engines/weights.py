"""Weights of a checkpoint folder. Invariant: what is read is complete and untied, or nothing is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

Weights = dict[str, "torch.Tensor"]
EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"


class WeightsError(ValueError):
    """The folder holds no usable weights; one line."""


def read_weights(folder: Path) -> Weights:
    """All tensors of `folder`/*.safetensors by name, memory mapped, with an explicit output head.

    vLLM packs the output head apart from the embedding on CPUs, so a tied checkpoint without `lm_head.weight` would leave
    the old head in place without an error; the copy made here prevents that.

    Raises:
        WeightsError: no such files, or they cannot be read.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise WeightsError(f"{folder}: no model.safetensors; the folder is not a checkpoint")
    weights: Weights = {}
    try:
        for file in files:
            weights |= load_file(file)
    except (OSError, SafetensorError) as error:
        raise WeightsError(f"{folder}: weights cannot be read: {error}") from error
    if HEAD not in weights and EMBEDDING in weights:
        weights[HEAD] = weights[EMBEDDING]
    return weights


def check_compatible(old: Weights, new: Weights, folder: Path) -> None:
    """Names and shapes agree.

    Raises:
        WeightsError: naming the first tensor that does not.
    """
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            raise WeightsError(f"{folder}: tensor {name} is missing")
        if name not in old:
            raise WeightsError(f"{folder}: tensor {name} is not part of the model")
        if old[name].shape != new[name].shape:
            raise WeightsError(
                f"{folder}: tensor {name} has shape {tuple(new[name].shape)}, the model's is {tuple(old[name].shape)}"
            )


def end_tokens(folder: Path) -> list[int]:
    """Ids that end a sample, from generation_config.json, else config.json.

    Raises:
        WeightsError: neither file is readable or names one.
    """
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        if not path.is_file():
            continue
        try:
            found = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id")
        except (OSError, ValueError) as error:
            raise WeightsError(f"{path}: cannot be read: {error}") from error
        if isinstance(found, int):
            return [found]
        if isinstance(found, list) and found:
            return [int(token) for token in found]
    raise WeightsError(f"{folder}: no eos_token_id in generation_config.json or config.json")
