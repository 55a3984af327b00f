"""Fifty stages through kill -9 of every service: resumed where they stood, and no committed stage run a second time.

The whole chain is real: scheduler, sampler, two verifiers under the supervisor that `temper run` has, a broker and a Redis of
their own. The model is one whose weights say the fifty commands one after the other. Every stage writes a number that nobody
can draw twice, and a stage's snapshot is named by its content: had a committed stage been run again, the state that the later
ones stand on, and with it the final verdict, would have another name than the log first gave it.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from tokenizers import Tokenizer, decoders, models
from transformers import LlamaConfig, LlamaForCausalLM

from schemas.heartbeats import Service
from schemas.ids import trajectory_id
from schemas.rewards import StageVerified, TrajectoryVerified
from schemas.run import Domains, Model, RunConfig, Sampler, Verifier
from schemas.states import TERMINAL, TaskState
from schemas.tasks import Task, TaskSubmitted
from schemas.topics import HEARTBEATS, POOLS, TASKS
from services.console.processes import Services
from services.runtime import topics
from services.runtime.catalog import Catalog
from services.runtime.errors import Unavailable
from services.runtime.fence import EpochFence
from services.runtime.producer import Outgoing, Producer
from services.runtime.reader import LogReader
from services.runtime.stack.kafka import KafkaServer
from services.runtime.stack.redis import RedisServer
from services.runtime.wire import Record
from services.scheduler.policies import policies_of
from services.verifier.image import image
from services.verifier.jail import JailUnavailable, probe
from tests.chaos.suite import log as logs
from tests.chaos.suite.audit import audit

STAGES, PAUSE_S = 50, 0.4
DEADLINE_S, BACK_S = 400.0, 60.0
NOTICE_S = 0.1
"""Between the last look at what is committed and the line that says what begins; a stage takes four times as long."""
PROJECT = Path(__file__).resolve().parents[2]
CARD = """
name = "t.long"
layer = "long_horizon"
summary = "Fifty stages."
generator = "g.py:f"
[verifier]
family = "stages"
[sampling]
max_tokens = 64
[timeouts]
lease_s = 10.0
verify_s = 90.0
[retry]
backoff_s = 0.1
"""
WORKERS: dict[str, Service] = {
    "scheduler": "scheduler",
    "sampler-0": "sampler",
    "verifier-0": "verifier",
    "verifier-1": "verifier",
}
PLAN: dict[int, tuple[str, ...]] = {
    3: ("scheduler",),
    7: ("verifier",),
    12: ("sampler-0",),
    17: ("redis",),
    22: ("scheduler", "sampler-0", "verifier-0", "verifier-1", "broker"),
    28: ("verifier",),
    33: ("scheduler", "sampler-0"),
    38: ("broker",),
}
"""Stages seen on the log -> who is killed then; `verifier` is the one that ran the last of them, and stays away until the other
has committed one."""
FIRST = "sampler:mid-generation:20"
"""And before the first of them: the sampler, in the middle of the answer."""
BEGINS = re.compile(r"stage (\d+) of (\S+) \S+ begins")
WHEN = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z")


def command(number: int) -> str:
    """Adds its line, and a number of its own."""
    return (
        f"sleep {PAUSE_S}; mkdir -p n; cat /proc/sys/kernel/random/uuid > n/{number}; echo {number} >> trail"
    )


def long_task() -> Task:
    stages: list[dict[str, Any]] = []
    for number in range(STAGES):
        lines = "".join(f"{n}\n" for n in range(number + 1))
        checks = [{"kind": "file", "path": "trail", "text": lines}]
        stages.append({"name": f"s{number}", "checks": checks})
    return Task(id="long", domain="t.long", prompt="go", spec={"files": {}, "stages": stages}, group_size=1)


def speaker(folder: Path) -> Path:
    """A model that says the commands: each token is a line, and the only likely successor of the one before."""
    words = ["<bos>", "<eos>", "<pad>", "<unk>", "go", *(command(n) + "\n" for n in range(STAGES))]
    vocabulary = {word: n for n, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocab=vocabulary, unk_token="<unk>"))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(words[:4])
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        intermediate_size=64,
        max_position_embeddings=128,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "norm" not in name:
                weights.zero_()
        for n in range(len(words)):
            model.model.embed_tokens.weight[n, n] = 1.0
            following = n + 1 if 4 <= n < len(words) - 1 else 1
            model.lm_head.weight[following, n] = 10.0
        logits = model(torch.tensor([[4, 5, 6]])).logits[0, :2]
    model.save_pretrained(folder)
    found = logits.log_softmax(-1).gather(1, torch.tensor([[5], [6]]))[:, 0].tolist()
    (folder / "canary.json").write_text(
        json.dumps({"prompts": [[4]], "answers": [[5, 6]], "logprobs": [found]})
    )
    return folder


class Chain:
    """All processes, what has been read of the log, and the hand that kills."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "stack"
        self.broker = KafkaServer.start(self.root)
        self.redis = RedisServer.start(self.root)
        cards = folder / "cards"
        cards.mkdir()
        (cards / "t.long.toml").write_text(CARD)
        self.config = RunConfig(
            name="long",
            model=Model(path=str(speaker(folder / "model"))),
            domains=Domains(paths=(str(cards),)),
            sampler=Sampler(engine="torch", threads=1, slots=2, max_model_len=64, max_num_seqs=2),
            verifier=Verifier(slots=1, reverify=0.0),
        )
        (folder / "config.json").write_bytes(msgspec.json.encode(self.config))
        self.marks = folder / "marks"
        self.marks.mkdir()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TEMPER_")}
        environment |= {
            "PYTHONPATH": str(PROJECT),
            "TEMPER_KAFKA": self.broker.bootstrap,
            "TEMPER_REDIS": self.redis.url,
            "TEMPER_CONFIG": str(folder / "config.json"),
            "TEMPER_RUN_DIR": str(folder / "run"),
            "TEMPER_BLOBS": str(folder / "blobs"),
            "TEMPER_FAULT": FIRST,
            "TEMPER_FAULT_DIR": str(self.marks),
        }
        self.services = {
            name: Services({name: service}, environment, folder / "logs") for name, service in WORKERS.items()
        }
        self.away: set[str] = set()
        """Those that nobody starts again for now."""
        self.log: list[Record] = []
        self.killed: Counter[str] = Counter()
        self.notes: list[str] = []

    @property
    def committed(self) -> dict[int, StageVerified]:
        """Stages by number, as first told."""
        found: dict[int, StageVerified] = {}
        for record in self.log:
            if isinstance(record.event, StageVerified):
                found.setdefault(record.event.stage, record.event)
        return found

    async def strike(self, victims: tuple[str, ...]) -> None:
        """Kill them all at once, the processes first; what nobody supervises is started again on its data and port."""
        last = self.committed[max(self.committed)].worker
        names = [last if victim == "verifier" else victim for victim in victims]
        for name in names:
            if name in WORKERS:
                os.kill(self.services[name].pids()[name], signal.SIGKILL)
            else:
                (self.broker if name == "broker" else self.redis).process.signal(signal.SIGKILL)
            self.killed[name] += 1
        if victims == ("verifier",):
            self.away.add(last)
        if "broker" in names:
            await asyncio.to_thread(self.broker.process.wait, BACK_S)
            port = int(self.broker.bootstrap.rpartition(":")[2])
            self.broker = await asyncio.to_thread(KafkaServer.start, self.root, port=port)
        if "redis" in names:
            await asyncio.to_thread(self.redis.process.wait, BACK_S)
            port = int(self.redis.url.rpartition(":")[2].partition("/")[0])
            self.redis = await asyncio.to_thread(RedisServer.start, self.root, port=port)

    async def run(self) -> None:
        """Submit the task and see it through."""
        await topics.create(self.broker.bootstrap, "", POOLS)
        for each in self.services.values():
            each.start()
        producer = Producer(self.broker.bootstrap, "", "test")
        await producer.start()
        plan = dict(PLAN)
        try:
            task = long_task()
            await producer.emit(Outgoing(topic=TASKS.name, event=TaskSubmitted(task=task), key=task.domain))
            positions: dict[str, int] = {}
            end = time.monotonic() + DEADLINE_S
            while not self.over():
                reader = LogReader(
                    self.broker.bootstrap, "", ["rewards", "task-states"], start=positions or "earliest"
                )
                try:
                    await reader.start()
                    while not self.over():
                        assert time.monotonic() < end, self.story()
                        self.log += await reader.poll(0.05)
                        positions = reader.positions()
                        await producer.emit(*await self.watch())
                        seen = len(self.committed)
                        due = [at for at in plan if at <= seen]
                        if due and all(each.pids() for each in self.services.values()):
                            await self.strike(plan.pop(min(due)))
                except Unavailable as error:  # the broker is away: that is what is tried here
                    self.notes.append(f"the log cannot be read for now: {error}")
                finally:
                    await reader.stop()
        finally:
            await producer.stop()

    async def watch(self) -> list[Outgoing]:
        """Start again what has died; what is to be said of it."""
        if self.committed and self.committed[max(self.committed)].worker not in self.away:
            self.away.clear()
        told: list[Outgoing] = []
        for name, each in self.services.items():
            if name not in self.away:
                self.notes += await asyncio.to_thread(each.watch)
                told += [Outgoing(topic=HEARTBEATS.name, event=beat, key=beat.worker) for beat in each.gone]
                each.gone = []
        return told

    def stop(self) -> None:
        for each in self.services.values():
            each.stop()

    def over(self) -> bool:
        return any(
            isinstance(record.event, TaskState) and record.event.state in TERMINAL for record in self.log
        )

    def story(self) -> str:
        """For whoever has to find out why it did not end."""
        tails = [
            f"{path.name}: {path.read_text(errors='replace')[-800:]}"
            for path in self.folder.glob("logs/*.log")
        ]
        said = [f"{len(self.committed)} stages after {DEADLINE_S:g} s; killed {dict(self.killed)}"]
        return "\n".join([*said, *self.notes, *tails])

    def begun(self) -> list[tuple[float, int, str, str]]:
        """(when, stage, whose, by whom) of every stage that a verifier began, from what the verifiers wrote."""
        found = []
        for path in sorted(self.folder.glob("logs/verifier-*.log")):
            for line in path.read_text(errors="replace").splitlines():
                said, when = BEGINS.search(line), WHEN.search(line)
                if said and int(said[1]) < STAGES:  # after the last only the verdict is left
                    assert when, line
                    at = datetime.fromisoformat(when[0]).timestamp()
                    found.append((at, int(said[1]), said[2], path.stem))
        return sorted(found)

    def close(self) -> None:
        self.stop()
        try:
            self.broker.stop()
        finally:
            self.redis.stop()


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Chain]:
    try:
        probe()
    except JailUnavailable as error:
        # A machine that is to prove the jail must not pass without one.
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"no jail on this machine: {error}")
    made = Chain(tmp_path)
    yield made
    made.close()


def first[T](records: list[Record], kind: type[T], key: Callable[[T], Any]) -> dict[Any, Record]:
    """The first record of each key among events of a kind."""
    found: dict[Any, Record] = {}
    for record in records:
        if isinstance(record.event, kind):
            found.setdefault(key(record.event), record)
    return found


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_fifty_stages_survive_kill_9_of_every_service_and_none_is_run_twice(chain: Chain) -> None:
    before = image()
    asyncio.run(chain.run())
    assert image() == before, "the jail's sources changed meanwhile: what was kept is then not gone on with"
    strikes = Counter(name for names in PLAN.values() for name in names)
    assert chain.killed.total() == strikes.total(), chain.notes
    assert {path.name for path in chain.marks.iterdir()} == {FIRST.replace(":", "_")}

    # Each stage is told in one way only, however often; all are of the second attempt, since the first died with its sampler.
    told: dict[str, set[bytes]] = {}
    for record in chain.log:
        if isinstance(record.event, StageVerified):
            told.setdefault(record.envelope.id, set()).add(msgspec.json.encode(record.event))
    assert len(told) == STAGES
    assert all(len(bodies) == 1 for bodies in told.values()), "a stage was told in two ways"
    stages = chain.committed
    assert sorted(stages) == list(range(STAGES))
    owner = trajectory_id("long", 2, 0)
    assert {each.trajectory_id for each in stages.values()} == {owner}
    assert {(each.runs, each.note, each.result.passed) for each in stages.values()} == {(1, "", True)}
    assert {each.worker for each in stages.values()} == {"verifier-0", "verifier-1"}

    # The final verdict stands on exactly those runs: their snapshots hold numbers that no second run would have drawn.
    [verdict] = {
        record.envelope.id: record.event for record in chain.log if isinstance(record.event, TrajectoryVerified)
        and record.event.lease_id == stages[0].lease_id
    }.values()  # fmt: skip
    assert (verdict.verdict.outcome, verdict.verdict.score) == ("scored", 1.0)
    assert [each.snapshot for each in verdict.verdict.stages] == [
        stages[n].result.snapshot for n in range(STAGES)
    ]
    assert len({each.result.snapshot for each in stages.values()}) == STAGES

    # What verifiers began. A kill costs the one stage that was running; while the broker is away two may have the answer at
    # once, and then whoever commits first goes on and the other follows. But none is begun once it is committed: that it is, is
    # known at the latest when it is on the log, or when anybody begins the next.
    begun = chain.begun()
    assert {whose for _, _, whose, _ in begun} == {owner}
    assert {(n, each.worker) for n, each in stages.items()} <= {(stage, by) for _, stage, _, by in begun}
    at = first(chain.log, StageVerified, lambda event: event.stage)
    next_one = {stage - 1: when for when, stage, _, _ in reversed(begun)}
    for when, stage, _, by in begun:
        known = min(at[stage].timestamp_ms / 1000, next_one.get(stage, math.inf))
        assert when <= known + NOTICE_S, f"{by} began stage {stage} after its commit"

    # The task ended once, as succeeded, and cost the attempt that died with its sampler and no more.
    states = [
        record.event
        for record in EpochFence().admitted(chain.log)
        if isinstance(record.event, TaskState)
    ]  # fmt: skip
    final = {msgspec.json.encode(event) for event in states if event.state in TERMINAL}
    assert len(final) == 1
    ends = next((e.state, e.attempt, e.losses) for e in states if e.state in TERMINAL)
    assert ends[:2] == ("succeeded", 2)
    assert ends[2] <= 1  # none in full where the sampler died before it could say that the lease was its own

    chain.stop()
    domains = chain.config.domains
    catalog = Catalog.load(domains.paths, domains.include, domains.exclude)
    log = asyncio.run(logs.read(chain.broker.bootstrap, ""))
    found = audit(log, policies_of(catalog.cards, chain.config), catalog, settled=False)
    assert found.findings == []
    assert found.figures["epochs"] >= 1 + strikes["scheduler"]
