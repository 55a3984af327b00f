"""Every data set of the reasoning package has a rule of ours or a reason; right answers pass, padded ones do not."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from typing import Any, cast

import pytest

from domains.adapters import reasoning_gym as adapter
from schemas.cards import parse_card
from schemas.tasks import Sample, Task
from services.verifier.engine import judge
from services.verifier.jail import Jail

factory = pytest.importorskip("reasoning_gym.factory")
CARD = parse_card(
    'name = "t.reason"\nlayer = "foundation"\nsummary = "s"\ngenerator = "a:b"\n[verifier]\nfamily = "document"\n',
    "card",
)
RULED = sorted({*adapter.NUMBERS, *adapter.PACKED, *adapter.TEXTS, *adapter.NESTED})


def score(made: Sample, answer: str) -> float:
    verdict = judge(
        Task(id="t", domain="t.reason", prompt="p", spec=made.spec), CARD, answer.encode(), cast("Jail", None)
    )
    assert verdict.outcome != "infra", verdict.evidence
    assert verdict.score is not None
    return verdict.score


def draw(dataset: str, seed: int = 0, difficulty: float = 0.0, **options: Any) -> Sample:
    return adapter.generate(random.Random(seed), difficulty, {"dataset": dataset, **options})


def test_every_data_set_has_a_rule_or_a_reason_and_only_one() -> None:
    assert {*RULED, *adapter.REFUSED} == set(factory.DATASETS)
    assert not {*RULED} & {*adapter.REFUSED}
    assert len(RULED) == len(adapter.NUMBERS) + len(adapter.PACKED) + len(adapter.TEXTS) + len(adapter.NESTED)


@pytest.mark.filterwarnings(
    "ignore::ResourceWarning"
)  # a package that reasoning-gym uses leaves its data file open
@pytest.mark.parametrize("dataset", RULED)
def test_gold_passes_and_padding_earns_nothing(dataset: str) -> None:
    made = draw(dataset)
    assert made == draw(dataset)
    assert score(made, made.gold) == 1.0
    assert score(made, "") == 0.0
    for padded in (f"The answer is {made.gold}, or is it not?", f"{made.gold}\n{draw(dataset, 1).gold} zzz"):
        assert score(made, padded) == 0.0, padded


@pytest.mark.parametrize("dataset", sorted(adapter.REFUSED))
def test_the_others_are_refused_with_their_reason(dataset: str) -> None:
    with pytest.raises(ValueError, match=f"reasoning-gym {dataset} is refused: "):
        draw(dataset, type="text")


def test_no_scorer_of_the_package_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> float:
        raise AssertionError("a scorer of the package was called")

    for dataset in ("string_insertion", "spiral_matrix", "binary_matrix", "chain_sum"):
        monkeypatch.setattr(factory.DATASETS[dataset][0], "score_answer", never)
        made = draw(dataset)
        assert score(made, made.gold) == 1.0
        assert score(made, "__import__('os').getcwd()") == 0.0


DRAW = """
import random
from domains.adapters.reasoning_gym import generate
for name in ("isomorphic_strings", "ransom_note", "word_sorting"):
    for seed in range(5):
        print(generate(random.Random(seed), 0.5, {"dataset": name}))
"""


def test_draws_are_the_same_in_every_process() -> None:
    made = {
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", DRAW],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            timeout=60,
        ).stdout
        for hash_seed in ("1", "2", "3")
    }
    assert len(made) == 1


def test_any_valid_board_of_queens_is_right() -> None:
    made = next(made for seed in range(20) if "also" in (made := draw("n_queens", seed)).spec["fields"]["answer"]
                and made.spec["fields"]["answer"]["also"])  # fmt: skip
    for board in made.spec["fields"]["answer"]["also"]:
        assert score(made, board) == 1.0
    assert score(made, made.gold.replace("Q", "_")) == 0.0


def test_groups_may_come_in_any_order_but_not_unsorted_palindromes() -> None:
    made = draw("group_anagrams")
    groups = made.spec["answer"]
    assert score(made, str([group[::-1] for group in groups[::-1]]).replace("'", '"')) == 1.0
    parts = draw("palindrome_partitioning", 3)
    first = next(each for each in parts.spec["answer"] if each["$ordered"] != each["$ordered"][::-1])
    turned = [each["$ordered"][::-1] if each is first else each["$ordered"] for each in parts.spec["answer"]]
    assert score(parts, str(turned).replace("'", '"')) < 1.0


def test_tolerances_are_relative_where_answers_are_small() -> None:
    made = draw("coin_flip", 1)
    value = float(made.gold)
    assert score(made, f"{value * 1.0005:.12g}") == 1.0
    assert score(made, f"{value * 1.01:.12g}") == 0.0
    assert score(made, "0") == 0.0
    assert score(draw("chain_sum"), "nan") == 0.0


def test_difficulty_follows_the_curriculum_up_to_the_reach() -> None:
    def longest(difficulty: float, **options: Any) -> int:
        return max(
            len(draw("chain_sum", seed, difficulty, curriculum=True, **options).prompt) for seed in range(12)
        )

    assert longest(0.0) < longest(0.5) < longest(1.0) < longest(1.0, reach=1.0)
    assert longest(1.0, max_terms=3, min_terms=2) < longest(1.0)
    with pytest.raises(ValueError, match="has no curriculum"):
        draw("acre", curriculum=True)


def test_a_scale_interpolates_a_setting() -> None:
    options = {"scale": {"min_terms": [2, 6], "max_terms": [2, 6]}}
    assert len(draw("chain_sum", 0, 1.0, **options).prompt) > len(draw("chain_sum", 0, 0.0, **options).prompt)


@pytest.mark.parametrize(
    ("options", "said"), [({}, "is missing"), ({"dataset": "no_such"}, "has no data set")]
)
def test_bad_options_are_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        adapter.generate(random.Random(0), 0.5, options)
