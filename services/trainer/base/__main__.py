"""`python -m services.trainer.base --out FOLDER`. Invariant: FOLDER is replaced whole or not at all."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import torch
from transformers import LlamaForCausalLM
from transformers.utils import logging as transformers_logging

from schemas.cards import LAYERS, CardError
from services.trainer.base import manifest, model
from services.trainer.base.demonstrations import Source, sources
from services.trainer.base.report import rows, table
from services.trainer.base.settings import Build
from services.trainer.base.train import train

DOMAINS = Path("domains")
# One random held-out set for every report, whatever the build's seed: figures of two bases compare.
REPORT_SEED = 7
GROUP = 8
SHOWN_EVERY = 50
"""Steps between two lines of progress."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="temper base build", description="Build the tiny base model by supervised training."
    )
    made.add_argument(
        "--out", type=Path, required=True, help="folder of the model; replaced when the build is done"
    )
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--steps", type=int, default=Build().steps)
    made.add_argument("--threads", type=int, default=2)
    made.add_argument("--domains", type=Path, default=DOMAINS, help="folder of the cards, by layer")
    made.add_argument(
        "--checkpoint-every",
        type=int,
        default=0,
        help="also replace FOLDER every N steps (0: only at the end)",
    )
    made.add_argument(
        "--report", action="store_true", help="train nothing: print the table of the model in FOLDER"
    )
    made.add_argument("--prompts", type=int, default=24, help="held-out prompts a domain in the table")
    return made


def _check_place(out: Path) -> None:
    if out.exists() and not (out / "config.json").exists():
        raise CardError(f"{out}: is there and holds no model; name a new folder, or one that a build made")


def _publish(trained: LlamaForCausalLM, options: argparse.Namespace, made: manifest.Manifest) -> None:
    """Write the folder beside its place, then move it there."""
    out: Path = options.out
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".base-") as scratch:
        folder = Path(scratch) / "new"
        folder.mkdir()
        model.write(trained, folder)
        digest = manifest.digest(folder / manifest.WEIGHTS)
        manifest.write(folder, msgspec.structs.replace(made, sha256=digest))
        if out.exists():
            out.replace(Path(scratch) / "old")
        folder.replace(out)


def _describe(
    trained: LlamaForCausalLM,
    options: argparse.Namespace,
    build: Build,
    steps: int,
    origin: Sequence[Source],
) -> manifest.Manifest:
    command = f"temper base build --out {options.out} --seed {build.seed} --steps {build.steps}"
    return manifest.Manifest(
        command=f"{command} --threads {options.threads}",
        build=build,
        steps_done=steps,
        domains=[source.domain for source in origin],
        parameters=sum(parameter.numel() for parameter in trained.parameters()),
        torch=str(torch.__version__),
        threads=options.threads,
        sha256="",
        rows=rows(trained, origin, prompts=options.prompts, group=GROUP, seed=REPORT_SEED),
    )


def _build(options: argparse.Namespace, origin: Sequence[Source]) -> None:
    build = Build(seed=options.seed, steps=options.steps)
    started = time.monotonic()

    def publish(step: int, trained: LlamaForCausalLM) -> None:
        made = _describe(trained.eval(), options, build, step, origin)
        _publish(trained, options, made)
        trained.train()
        sys.stdout.write(table(made.rows) + "\n")

    def progress(step: int, loss: float, trained: LlamaForCausalLM) -> None:
        if step % SHOWN_EVERY == 0 or step == build.steps:
            seconds = time.monotonic() - started
            sys.stderr.write(f"step {step}/{build.steps}  loss {loss:.3f}  {seconds:.0f} s\n")
        if options.checkpoint_every and step % options.checkpoint_every == 0 and step < build.steps:
            publish(step, trained)

    publish(build.steps, train(origin, build, progress))


def _report(options: argparse.Namespace, origin: Sequence[Source]) -> None:
    loaded = LlamaForCausalLM.from_pretrained(options.out, dtype=torch.float32, local_files_only=True)
    made = rows(loaded.eval(), origin, prompts=options.prompts, group=GROUP, seed=REPORT_SEED)
    sys.stdout.write(table(made) + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0 done, 2 wrong use."""
    options = parser().parse_args(argv)
    torch.set_num_threads(options.threads)
    transformers_logging.disable_progress_bar()
    try:
        origin = sources(options.domains, LAYERS)
        if options.report:
            _report(options, origin)
        else:
            _check_place(options.out)
            _build(options, origin)
    except (CardError, OSError) as error:
        sys.stderr.write(f"temper base build: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
