"""What made a base: `MANIFEST.json`, `README.md`. Invariant: the digest is of the weight file beside them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from services.trainer.base.report import Row, table
from services.trainer.base.settings import Build

WEIGHTS = "model.safetensors"


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """How to make the folder again, and how to recognise it."""

    command: str
    build: Build
    steps_done: int
    domains: list[str]
    parameters: int
    torch: str
    threads: int
    sha256: str
    """SHA-256 of the weight file."""
    rows: list[Row]


def digest(path: Path) -> str:
    """SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write(folder: Path, manifest: Manifest) -> None:
    """Write both files into `folder`."""
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
    (folder / "MANIFEST.json").write_bytes(text + b"\n")
    (folder / "README.md").write_text(readme(manifest), encoding="utf-8")


def readme(manifest: Manifest) -> str:
    """The page of the model."""
    build = manifest.build
    text = f"""# The tiny base model

A byte-level Llama of {manifest.parameters:,} parameters (float32, untied head), trained from random weights
on deliberately imperfect demonstrations of {len(manifest.domains)} demo domains. It knows the forms of the
answers and is often wrong, greedily too: reinforcement learning is to make it right. It is of no other use.

A sequence is the prompt's bytes, the answer's bytes and the end token (id 256); nothing else is added.

- made by `{manifest.command}`
- seed {build.seed}, {manifest.steps_done} steps of {build.rows} x {build.row_tokens} tokens,
  torch {manifest.torch}, {manifest.threads} threads (others round otherwise and give another digest)
- SHA-256 of `{WEIGHTS}`: `{manifest.sha256}`
- licence: Apache-2.0, as the project; all training data come from the generators in `domains/generators`

Held-out prompts, compared with the one gold answer as text (the verifiers accept more): share of samples at
temperature 1 that are exact, or one of the listed slips; of prompts with an exact answer among eight samples;
and of greedy answers that are exact.

"""
    return text + table(manifest.rows) + "\n"
