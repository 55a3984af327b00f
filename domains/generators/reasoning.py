"""Tasks of the reasoning-gym package. Invariant: one entry a call, fixed by the random state."""

from __future__ import annotations

import random
from typing import Any

from schemas.tasks import Sample

SEEDS = 2**31


def generate(rng: random.Random, difficulty: float, options: dict[str, Any]) -> Sample:
    """One entry of the data set that `options["dataset"]` names.

    `options["type"]` is the answer's field type (`number` or `text`, default `text`). The difficulty
    interpolates a list `[easy, hard]` under `options["scale"][setting]`. The rest is the data set's.

    Raises:
        ValueError: `dataset` missing, or an entry without a text answer.
        ModuleNotFoundError: reasoning-gym is not installed.
    """
    # Imported here: the package is heavy and only some presets want it.
    from reasoning_gym.factory import create_dataset

    settings = {key: value for key, value in options.items() if key not in ("dataset", "type", "scale")}
    for key, (easy, hard) in options.get("scale", {}).items():
        settings[key] = round(easy + difficulty * (hard - easy))
    dataset = options.get("dataset")
    if not dataset:
        raise ValueError("options.dataset is missing: name a reasoning-gym data set, as chain_sum")
    entry = create_dataset(dataset, seed=rng.randrange(SEEDS), size=1, **settings)[0]
    answer = entry["answer"]
    if not isinstance(answer, str) or not answer:
        raise ValueError(f"reasoning-gym {dataset}: entry without a text answer; choose another data set")
    kind = options.get("type", "text")
    want: Any = float(answer) if kind == "number" else answer
    spec = {"syntax": "value", "fields": {"answer": {"type": kind, "want": want}}}
    return Sample(prompt=entry["question"], spec=spec, gold=answer, difficulty=difficulty)
