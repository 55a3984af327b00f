"""Tasks of the reasoning-gym package. Invariant: a task is fixed by the random state, and only a whole right answer scores.

A card names a data set under `options.dataset`; family `document` judges by our own rule, never by the package's scorers:
several of those evaluate the model's text, and most give something for a right answer hidden in a long one. A data set whose
tasks have several right answers, or none written down, or that runs bundled programs, is refused with its reason.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Any

from schemas.tasks import Sample

SEEDS = 2**31
REACH = 0.5
"""Share of a curriculum that difficulty 1 reaches: the last levels of many make prompts of megabytes or run for minutes."""
OWN = ("dataset", "type", "scale", "curriculum", "reach")
"""Options of ours; the others are the data set's."""
MAX_ANSWER = 4096

NUMBERS = (
    "basic_arithmetic", "binary_alternation", "chain_sum", "circuit_logic", "coin_flip", "count_bits", "count_primes",
    "decimal_arithmetic", "decimal_chain_sum", "gcd", "gsm_symbolic", "largest_island", "lcm", "leg_counting",
    "letter_counting", "maze", "number_format", "number_sequence", "power_function", "products", "rectangle_count",
    "rotten_oranges", "self_reference", "simple_equations", "simple_geometry",
)  # fmt: skip
"""Answers that are one number."""
TOLERANCES: dict[str, dict[str, float]] = {
    "coin_flip": {"relative": 0.001},
    "number_format": {"tolerance": 0.01},
    "power_function": {"relative": 0.005},
}
"""What a question allows its number to be off."""
PACKED = (
    "advanced_geometry", "complex_arithmetic", "fraction_simplification", "game_of_life", "list_functions", "number_filtering",
    "number_sorting", "prime_factorization",
)  # fmt: skip
"""Answers whose blanks mean nothing."""
TEXTS = (
    "ab", "acre", "aiw", "arc_1d", "arc_agi", "base_conversion", "bf", "binary_matrix", "bitwise_arithmetic", "caesar_cipher",
    "calendar_arithmetic", "color_cube_rotation", "course_schedule", "dice", "emoji_mystery", "family_relationships",
    "figlet_font", "futoshiki", "game_of_life_halting", "isomorphic_strings", "knights_knaves", "letter_jumble",
    "mahjong_puzzle", "manipulate_matrix", "mini_sudoku", "modulo_grid", "n_queens", "needle_haystack", "path_star",
    "pool_matrix", "ransom_note", "rearc", "rotate_matrix", "sentence_reordering", "spell_backward", "spiral_matrix",
    "string_insertion", "string_manipulation", "string_splitting", "string_synthesis", "sudoku", "survo", "syllogism",
    "time_intervals", "tsumego", "word_sequence_reversal", "word_sorting", "zebra_puzzles",
)  # fmt: skip
"""Answers that are one text, compared without case and with runs of white space as one blank."""
NESTED = ("group_anagrams", "palindrome_partitioning")
"""Answers that are JSON lists of lists, the outer in any order, the inner too for anagrams."""
_MANY = "many answers are right, and only the package's own scorer tells which"
_EVAL = "many spellings are right, and the package's scorer evaluates the model's text"
REFUSED: dict[str, str] = {
    **dict.fromkeys(
        (
            "cryptarithm", "jugs", "kakurasu", "knight_swap", "palindrome_generation", "polynomial_equations", "quantum_lock",
            "shortest_path", "sokoban", "tower_of_hanoi", "word_ladder",
        ),
        _MANY,
    ),
    **dict.fromkeys(("boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"), "no answer is written down"),
    **dict.fromkeys(
        ("countdown", "intermediate_integration", "polynomial_multiplication", "puzzle24", "simple_integration"), _EVAL
    ),
    "codeio": "its tasks are made by running programs that come with the package",
    "composite": "it mixes others: give each a card of its own",
}  # fmt: skip
"""Data set -> why it makes no tasks."""


class Sorted(frozenset[str]):
    """A set in the order of its texts. Two data sets draw from a set, whose order differs from process to process."""

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(super().__iter__()))

    def __sub__(self, other: AbstractSet[object]) -> Sorted:
        return Sorted(super().__sub__(other))


def generate(rng: random.Random, difficulty: float, options: dict[str, Any]) -> Sample:
    """One entry of the data set that `options["dataset"]` names.

    The difficulty interpolates a list `[easy, hard]` under `options["scale"][setting]`; with `options["curriculum"]` it also
    sets the data set's own curriculum, up to the share `reach` (default REACH). `options["type"]`, `number` or `text`, overrules
    the rule of this module. The rest are settings of the data set.

    Raises:
        ValueError: `dataset` missing, refused or unknown, no curriculum, or an entry without a usable answer.
        ModuleNotFoundError: reasoning-gym is not installed.
    """
    # Imported here: the package is heavy and only some presets want it.
    from reasoning_gym.factory import DATASETS, create_dataset

    dataset = options.get("dataset")
    if not dataset:
        raise ValueError("options.dataset is missing: name a reasoning-gym data set, as chain_sum")
    if dataset in REFUSED:
        raise ValueError(f"reasoning-gym {dataset} is refused: {REFUSED[dataset]}")
    if dataset not in DATASETS:
        raise ValueError(f"reasoning-gym has no data set {dataset!r}")
    settings = (
        levels(dataset, difficulty * float(options.get("reach", REACH))) if options.get("curriculum") else {}
    )
    settings |= {key: value for key, value in options.items() if key not in OWN}
    for key, (easy, hard) in options.get("scale", {}).items():
        settings[key] = round(easy + difficulty * (hard - easy))
    made = create_dataset(dataset, **(settings | {"seed": rng.randrange(SEEDS), "size": 1}))
    if isinstance(getattr(made, "letters", None), set):
        made.letters = Sorted(made.letters)
    entry = made[0]
    answer = entry["answer"]
    if not isinstance(answer, str) or not answer.strip() or len(answer) > MAX_ANSWER:
        raise ValueError(
            f"reasoning-gym {dataset}: entry without a text answer of 1 to {MAX_ANSWER} characters"
        )
    return Sample(
        prompt=entry["question"],
        spec=spec(dataset, entry, options.get("type")),
        gold=answer,
        difficulty=difficulty,
    )


def spec(dataset: str, entry: dict[str, Any], kind: str | None = None) -> dict[str, Any]:
    """What family `document` needs for an entry. Raises ValueError for a data set without a rule."""
    answer = entry["answer"]
    if kind is not None:
        want: Any = float(answer) if kind == "number" else answer
        return _value({"type": kind, "want": want})
    if dataset in NUMBERS:
        return _value({"type": "number", "want": answer, **TOLERANCES.get(dataset, {})})
    if dataset in PACKED:
        # The question asks for degrees, so the sign may be there or not.
        plain = answer.replace("°", "")
        return _value({"type": "id", "want": answer} | ({"also": [plain]} if plain != answer else {}))
    if dataset in NESTED:
        groups = entry["metadata"]["solution"]
        ordered = dataset == "palindrome_partitioning"
        return {
            "syntax": "json",
            "answer": [{"$ordered": list(each)} if ordered else list(each) for each in groups],
        }
    if dataset == "n_queens":
        also = [each for each in entry["metadata"]["valid_answers"] if each != answer]
        return _value({"type": "text", "want": answer, "also": also})
    if dataset in TEXTS:
        return _value({"type": "text", "want": answer})
    raise ValueError(f"reasoning-gym {dataset} has no rule here: name its answer's type under options.type")


def _value(field: dict[str, Any]) -> dict[str, Any]:
    return {"syntax": "value", "fields": {"answer": field}}


def levels(dataset: str, share: float) -> dict[str, Any]:
    """Settings of the data set's curriculum with every attribute at `share` of its levels. Raises ValueError if it has none."""
    from reasoning_gym.factory import create_curriculum, has_curriculum

    if not has_curriculum(dataset):
        raise ValueError(f"reasoning-gym {dataset} has no curriculum: use options.scale")
    curriculum = create_curriculum(dataset)
    for name, attribute in curriculum.attributes.items():
        curriculum.set_attr_level(name, round(min(1.0, max(0.0, share)) * (len(attribute.levels) - 1)))
    made = curriculum.generate_configuration()
    return {name: value for name, value in vars(made).items() if name not in ("seed", "size")}
