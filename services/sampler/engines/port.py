"""The engine port. Invariant: tokens of a segment come from one policy version, and no refused version samples a token."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from schemas.tasks import Sampling
from schemas.trajectories import Finish
from services.sampler.engines.weights import Weights, check_compatible, read_weights

Scored = tuple[list[int], list[int]]
"""(prompt ids, answer ids), both not empty."""
Score = Callable[[list[Scored]], list[list[float]]]
"""Log-probabilities at temperature 1 of each answer's tokens, given prompt and answer so far."""
Check = Callable[[Score], None]
"""Raises `VersionRefusedError` when the weights in the engine are not the ones they claim to be."""


class EngineError(RuntimeError):
    """The engine cannot do what was asked; the message is one line."""


class PromptTooLongError(EngineError):
    """The prompt leaves no room for a token within `max_model_len`."""


class VersionRefusedError(EngineError):
    """A policy version must not serve; the engine still has the previous one."""


@dataclass(frozen=True, slots=True)
class Request:
    """A group: `n` samples of one prompt, which share its prefix."""

    id: str
    prompt_ids: list[int]
    n: int
    sampling: Sampling


@dataclass(frozen=True, slots=True)
class Segment:
    """Tokens of sample `index` of a request, in order, all sampled by policy `version`."""

    request_id: str
    index: int
    token_ids: list[int]
    logprobs: list[float]
    """Under the distribution sampled from: temperature and top_p applied; greedy ones at temperature 1."""
    version: int
    finish: Finish | None = None
    """Set in the last segment of a sample."""


class Engine(ABC):
    """Continuous batching of many groups. Not thread safe: one thread owns it (`services.sampler.engines.driver`)."""

    name: str
    max_model_len: int
    """Prompt and sampled tokens together, at most."""

    def __init__(self) -> None:
        self._version = -1
        self.prefix_tokens = 0
        """Prompt tokens taken from the prefix cache so far, where the engine has one."""
        self.tokens = 0
        """Tokens that it can hold at a time, those of prompts and of all samples together; 0: not known."""
        self._weights: Weights = {}

    def version(self) -> int:
        """Policy version in the engine, -1 before the first load."""
        return self._version

    def load(self, version: int, folder: Path, check: Check | None = None) -> None:
        """Install the weights in `folder`, prove them with `check`, and go on with requests in flight.

        Samples in flight keep their tokens and continue under the new version; nothing computed under the old one is reused.

        Raises:
            VersionRefusedError: unreadable, of another shape, or refused by `check`; the previous version serves on.
        """
        try:
            weights = read_weights(folder)
            if self._weights:
                check_compatible(self._weights, weights, folder)
        except ValueError as error:
            raise VersionRefusedError(str(error)) from error
        previous = self._weights
        self._suspend()
        try:
            self._install(weights)
            if check is not None:
                check(self.score)
        except VersionRefusedError:
            self._restore(previous)
            raise
        except Exception as error:  # whatever the library below says, the old weights must come back
            self._restore(previous)
            raise VersionRefusedError(f"{folder}: weights could not be installed: {error}") from error
        else:
            self._weights, self._version = weights, version
        finally:
            self._resume()

    def _restore(self, previous: Weights) -> None:
        if previous:
            self._install(previous)

    @abstractmethod
    def submit(self, request: Request) -> None:
        """Queue a group.

        Raises:
            PromptTooLongError: no room for a single sampled token.
            EngineError: no version is loaded, or the prompt is empty.
        """

    @abstractmethod
    def abort(self, request_id: str) -> None:
        """Forget a group; no further segments of it. Unknown ids are ignored."""

    @abstractmethod
    def step(self) -> list[Segment]:
        """Sample about one token for every running sample."""

    @abstractmethod
    def running(self) -> int:
        """Samples not finished, waiting ones included."""

    @abstractmethod
    def score(self, sequences: list[Scored]) -> list[list[float]]:
        """See `Score`. Only while nothing is in flight or everything is suspended.

        Raises:
            EngineError: a sequence is longer than `max_model_len` - 1.
        """

    @abstractmethod
    def close(self) -> None:
        """Free what the engine holds."""

    @abstractmethod
    def _install(self, weights: Weights) -> None:
        """Replace all weights; caches may still hold what the old ones computed."""

    @abstractmethod
    def _suspend(self) -> None:
        """Take the samples in flight out of the batch, with the tokens they have."""

    @abstractmethod
    def _resume(self) -> None:
        """Drop every cache and put suspended samples back; their context is computed anew."""

    def _admit(self, request: Request) -> int:
        """Tokens each sample may have at most; the checks all engines share."""
        if self._version < 0:
            raise EngineError("no policy version is loaded")
        if not request.prompt_ids:
            raise EngineError("the prompt has no tokens")
        room = self.max_model_len - len(request.prompt_ids)
        if room < 1:
            raise PromptTooLongError(
                f"prompt of {len(request.prompt_ids)} tokens, sampler.max_model_len is {self.max_model_len}"
            )
        return min(room, request.sampling.max_tokens)
