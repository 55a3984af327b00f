"""The canary of a checkpoint. Invariant: a version serves only if the engine gives its canary the trainer's log-probabilities."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

from services.sampler.engines.port import Check, Score, Scored, VersionRefusedError

NAME = "canary.json"


class Canary(msgspec.Struct, frozen=True, kw_only=True):
    """What the trainer wrote: for each prompt an answer and its tokens' log-probabilities at temperature 1."""

    prompts: list[list[int]]
    answers: list[list[int]]
    logprobs: list[list[float]]


def read(folder: Path) -> Canary:
    """The canary of a checkpoint folder.

    Raises:
        VersionRefusedError: missing, unreadable, empty, or lists of different length.
    """
    path = folder / NAME
    try:
        canary = msgspec.json.decode(path.read_bytes(), type=Canary)
    except (OSError, msgspec.MsgspecError) as error:
        raise VersionRefusedError(f"{path}: cannot be read: {error}") from error
    if not canary.prompts or not len(canary.prompts) == len(canary.answers) == len(canary.logprobs):
        raise VersionRefusedError(f"{path}: needs as many prompts as answers and logprobs, and at least one")
    for prompt, answer, logprobs in zip(canary.prompts, canary.answers, canary.logprobs, strict=True):
        if not prompt or not answer or len(answer) != len(logprobs):
            raise VersionRefusedError(
                f"{path}: each prompt and answer needs tokens, each answer token a logprob"
            )
    return canary


def worst(expected: list[list[float]], found: list[list[float]]) -> float:
    """Largest absolute difference; infinite where a number is missing or not finite."""
    result = 0.0
    for wanted, got in zip(expected, found, strict=True):
        if len(wanted) != len(got):
            return math.inf
        for a, b in zip(wanted, got, strict=True):
            difference = abs(a - b)
            if not math.isfinite(difference):
                return math.inf
            result = max(result, difference)
    return result


def checker(canary: Canary, tolerance: float, max_model_len: int, seen: list[float] | None = None) -> Check:
    """A check for `Engine.load`; answers are cut to what fits `max_model_len`. The difference is appended to `seen`."""

    def check(score: Score) -> None:
        sequences: list[Scored] = []
        expected: list[list[float]] = []
        for prompt, answer, logprobs in zip(canary.prompts, canary.answers, canary.logprobs, strict=True):
            room = max_model_len - 1 - len(prompt)
            if room > 0:
                sequences.append((prompt, answer[:room]))
                expected.append(logprobs[:room])
        if not sequences:
            raise VersionRefusedError(f"no canary prompt fits sampler.max_model_len {max_model_len}")
        difference = worst(expected, score(sequences))
        if seen is not None:
            seen.append(difference)
        if not difference <= tolerance:
            raise VersionRefusedError(
                f"canary: log-probabilities differ by {difference:.4g}, sampler.canary_tolerance is {tolerance:g}"
            )

    return check
