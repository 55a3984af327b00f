"""Figures of a run are counted from its events."""

from __future__ import annotations

from schemas.checkpoints import CheckpointPublished
from schemas.evaluations import DomainScore, EvaluationFinished
from schemas.rewards import TrajectoryVerified
from schemas.run import RunConfig
from schemas.states import TaskState
from schemas.tasks import PolicyRef, Task, TaskSubmitted
from schemas.trajectories import Span, TrajectoryCompleted
from schemas.verdicts import Part, infra, scored
from services.console.figures import Figures, add, examples, lost, summary
from services.console.report import render

POLICY = PolicyRef(version=1, uri="u", digest="d")
TASK = Task(id="t1", domain="a.b", prompt="ask <b>>", spec={})


def completed(index: int) -> TrajectoryCompleted:
    return TrajectoryCompleted(
        trajectory_id=f"x{index}",
        task=TASK,
        attempt=1,
        group_id="g",
        group_size=2,
        index=index,
        lease_id="l",
        prompt_ids=[1],
        token_ids=[2, 3],
        logprobs=[-0.1, -0.2],
        spans=(Span(version=1, start=0, end=2),),
        finish="stop",
        text="<script>",
        duration_s=0.5,
    )


def verified(index: int, *, broken: bool = False, cached: bool = False) -> TrajectoryVerified:
    return TrajectoryVerified(
        trajectory_id=f"x{index}",
        task_id="t1",
        domain="a.b",
        purpose="train",
        attempt=1,
        group_id="g",
        group_size=2,
        index=index,
        lease_id="l",
        content="c",
        verdict=infra("slot died") if broken else scored([Part(name="tests", weight=1.0, score=0.5)]),
        cached=cached,
    )


def evaluation(label: str, mean: float) -> EvaluationFinished:
    row = DomainScore(
        domain="a.b",
        layer="tool",
        tasks=12,
        samples=48,
        mean=mean,
        low=mean - 0.1,
        high=mean + 0.1,
        passed=mean,
        greedy=mean,
    )
    return EvaluationFinished(
        run="r",
        evaluation_id=label,
        label="before" if label == "before" else "after",
        policy=POLICY,
        mean=mean,
        low=mean - 0.05,
        high=mean + 0.05,
        greedy=mean,
        layers={"tool": mean},
        domains=(row,),
    )


def folded() -> Figures:
    figures = Figures()
    add(figures, "tasks", TaskSubmitted(task=TASK))
    for index in (0, 1, 1):
        add(figures, "trajectories", completed(index))
    for event in (verified(0), verified(1, broken=True), verified(0, cached=True)):
        add(figures, "rewards", event)
    for version in (0, 1, 2):
        add(
            figures,
            "checkpoints",
            CheckpointPublished(
                run="r",
                policy=PolicyRef(version=version, uri="u", digest="d"),
                step=version,
                groups=(f"g{version}", f"h{version}") if version else (),
                metrics={
                    "reward_mean": 0.3 * version,
                    "layer/tool": 0.3 * version,
                    "train_s": 1.0,
                    "wait_s": 2.0,
                }
                if version
                else {},
            ),
        )
    for item in (evaluation("before", 0.3), evaluation("after", 0.8)):
        add(figures, "evaluations", item)
    return figures


def test_duplicates_are_counted_and_change_nothing_else() -> None:
    figures = folded()
    assert figures.duplicates == 2
    assert figures.outcomes == {"scored": 1, "infra": 1}
    assert (figures.executed, figures.cached, figures.tokens) == (2, 0, 4)


def test_a_task_is_lost_until_it_is_terminal() -> None:
    figures = folded()
    assert lost(figures) == 1
    add(figures, "task-states", TaskState(task_id="t1", domain="a.b", purpose="train", state="running"))
    assert lost(figures) == 1
    add(figures, "task-states", TaskState(task_id="t1", domain="a.b", purpose="train", state="succeeded"))
    assert lost(figures) == 0


def test_the_summary_has_the_promised_fields() -> None:
    report = summary(folded(), seed=7, wall_s=12.34, restarts={"sampler-0": 1}, replay={"equal": True})
    assert report["seed"] == 7
    assert report["steps"] == 2
    assert report["heldout"]["before"] == 0.3
    assert report["heldout"]["after"] == 0.8
    assert report["heldout"]["per_domain"]["a.b"]["after"]["interval"] == [0.7, 0.9]
    assert report["events"] == {
        "checkpoints": 3,
        "evaluations": 2,
        "rewards": 3,
        "tasks": 1,
        "trajectories": 3,
    }
    assert (report["groups_trained"], report["groups_trained_twice"]) == (4, 0)
    assert report["duplicates_ignored"] == 2


def test_a_group_in_two_versions_was_trained_twice_and_a_version_that_came_again_was_not() -> None:
    figures = folded()
    for version, groups in ((2, ("g2", "h2")), (3, ("g1", "g3"))):
        policy = PolicyRef(version=version, uri="u", digest="d")
        add(figures, "checkpoints", CheckpointPublished(run="r", policy=policy, step=version, groups=groups))
    report = summary(figures, seed=7, wall_s=1.0, restarts={}, replay={})
    assert (report["groups_trained"], report["groups_trained_twice"]) == (5, 1)


def test_the_page_is_self_contained_and_escapes_what_the_model_wrote() -> None:
    figures = folded()
    report = summary(figures, seed=7, wall_s=12.0, restarts={}, replay={"equal": True}) | {
        "phases": {"training": 10.0}
    }
    page = render(RunConfig(name="r"), figures, report)
    assert examples(figures)[0].answer == "<script>"
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "0.800" in page
    for fetched in (' src="', "<link", 'href="http', "@import", "url("):
        assert fetched not in page.replace("url(#", "")
