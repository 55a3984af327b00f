"""Base models by name: what is missing is said in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.runtime.models import ModelError, resolve_model


def test_a_complete_folder_is_itself(tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (tmp_path / name).write_bytes(b"")
    assert resolve_model(str(tmp_path), tmp_path / "cache") == tmp_path


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors", "tokenizer.json"])
def test_what_a_folder_lacks_is_named(tmp_path: Path, missing: str) -> None:
    for name in {"config.json", "model.safetensors", "tokenizer.json"} - {missing}:
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(ModelError) as caught:
        resolve_model(str(tmp_path), tmp_path / "cache")
    assert missing in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "says"), [("/no/such/folder", "no such folder"), ("package:none", "known packages")]
)
def test_unknown_names(tmp_path: Path, path: str, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        resolve_model(path, tmp_path)
