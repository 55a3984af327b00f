from __future__ import annotations

from pathlib import Path

import pytest

from services.runtime.catalog import Catalog, CatalogError, split_of

CARD = """
name = "{name}"
layer = "foundation"
summary = "sums"
{source}
[options]
top = {top}
[prompt]
template = "Q: {{prompt}}\\nA:"
system = "Be brief."
[verifier]
family = "format"
"""
GENERATOR = """
from schemas.tasks import Sample

def sums(rng, difficulty, options):
    top = int(options["top"] * (1 + difficulty))
    a, b = rng.randrange(top), rng.randrange(top)
    kind = "even" if a % 2 == 0 else ""
    return Sample(
        prompt=f"{a} + {b}", spec={"sum": a + b}, gold=str(a + b), slips=(str(a + b + 1),), kind=kind
    )

def broken(rng, difficulty, options):
    raise KeyError("nothing")

def odd(rng, difficulty, options):
    return "text"
"""


def folder(
    tmp_path: Path, *, name: str = "sums", source: str = 'generator = "make.py:sums"', top: int = 100
) -> Path:
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "make.py").write_text(GENERATOR)
    (tmp_path / f"{name}.toml").write_text(CARD.format(name=name, source=source, top=top))
    return tmp_path


def test_draws_are_deterministic_distinct_and_on_their_side(tmp_path: Path) -> None:
    catalog = Catalog.load([folder(tmp_path)])
    train = catalog.sample("sums", split="train", seed=1, count=60)
    held = catalog.sample("sums", split="heldout", seed=1, count=60)
    again = Catalog.load([tmp_path]).sample("sums", split="train", seed=1, count=60)
    assert train == again
    assert catalog.sample("sums", split="train", seed=1, count=20) == train[:20]
    assert catalog.sample("sums", split="train", seed=2, count=60) != train
    prompts = {drawn.task.prompt for drawn in train}
    assert len(prompts) == len({drawn.task.id for drawn in train}) == 60
    assert not prompts & {drawn.task.prompt for drawn in held}
    for side, purpose, drawn in [("train", "train", train), ("heldout", "eval", held)]:
        assert {split_of("sums", one.task.prompt) for one in drawn} == {side}
        assert {one.task.purpose for one in drawn} == {purpose}
    levels = [drawn.task.difficulty for drawn in train]
    assert [levels.count(level) for level in (0.0, 0.5, 1.0)] == [20, 20, 20]
    first = train[0]
    assert first.task.prompt.startswith("Q: ")
    assert first.task.system == "Be brief."
    assert first.gold == str(first.task.spec["sum"])
    assert first.slips == (str(first.task.spec["sum"] + 1),)
    assert {drawn.task.kind for drawn in train} == {"even", ""}


def test_wanted_difficulty_is_kept(tmp_path: Path) -> None:
    drawn = Catalog.load([folder(tmp_path)]).sample("sums", split="train", seed=1, count=10, difficulty=0.25)
    assert {one.task.difficulty for one in drawn} == {0.25}


def test_exhausted_domain_says_so(tmp_path: Path) -> None:
    catalog = Catalog.load([folder(tmp_path, top=2)])
    with pytest.raises(
        CatalogError, match=r"sums yields \d+ distinct heldout prompts at difficulty 0, 50 were asked for"
    ):
        catalog.sample("sums", split="heldout", seed=1, count=50, difficulty=0.0)


def test_dataset_is_shuffled_by_seed_and_split(tmp_path: Path) -> None:
    rows = [f'{{"prompt": "p{i}", "spec": {{}}, "gold": "g{i}", "difficulty": {i % 2}}}' for i in range(80)]
    folder(tmp_path, source='dataset = "rows.jsonl"')
    (tmp_path / "rows.jsonl").write_text("\n".join(rows) + "\n")
    catalog = Catalog.load([tmp_path])
    one = catalog.sample("sums", split="train", seed=1, count=30)
    assert one == catalog.sample("sums", split="train", seed=1, count=30)
    assert one != catalog.sample("sums", split="train", seed=2, count=30)
    assert {
        drawn.task.difficulty
        for drawn in catalog.sample("sums", split="train", seed=1, count=20, difficulty=0.9)
    } == {1.0}
    with pytest.raises(CatalogError, match="were asked for"):
        catalog.sample("sums", split="train", seed=1, count=81)
    (tmp_path / "rows.jsonl").write_text(rows[0] + "\n{}\n")
    with pytest.raises(CatalogError, match=r"rows\.jsonl:2: not a sample"):
        catalog.sample("sums", split="train", seed=1, count=1)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ('generator = "make.py:absent"', "has no function absent"),
        ('generator = "absent.py:sums"', "does not exist"),
        ('generator = "domains.generators.absent:sums"', "ModuleNotFoundError"),
        ('generator = "make.py:broken"', "fails: KeyError"),
        ('generator = "make.py:odd"', "returns str, not a Sample"),
        ('dataset = "absent.jsonl"', "cannot be read"),
    ],
)
def test_broken_sources_name_the_card(tmp_path: Path, source: str, words: str) -> None:
    catalog = Catalog.load([folder(tmp_path, source=source)])
    with pytest.raises(CatalogError, match=words):
        catalog.sample("sums", split="train", seed=1, count=1)


def test_duplicates_unknowns_and_missing_folders(tmp_path: Path) -> None:
    folder(tmp_path / "a")
    folder(tmp_path / "b", name="other")
    with pytest.raises(CatalogError, match="unknown domain 'x'"):
        Catalog.load([tmp_path]).card("x")
    assert list(Catalog.load([tmp_path], include=["o*"]).cards) == ["other"]
    assert list(Catalog.load([tmp_path], exclude=["o*"]).cards) == ["sums"]
    with pytest.raises(CatalogError, match="matches none"):
        Catalog.load([tmp_path], include=["zzz"])
    with pytest.raises(CatalogError, match="no such folder"):
        Catalog.load([tmp_path / "absent"])
    folder(tmp_path / "models")
    assert len(Catalog.load([tmp_path]).cards) == 2
    folder(tmp_path / "c")
    with pytest.raises(CatalogError, match="already described by"):
        Catalog.load([tmp_path])


def test_wrong_key_in_a_card_names_the_file(tmp_path: Path) -> None:
    folder(tmp_path)
    path = tmp_path / "sums.toml"
    path.write_text(path.read_text() + "\n[limits]\nwal_s = 3\n")
    with pytest.raises(CatalogError, match=r"sums\.toml: .*wal_s"):
        Catalog.load([tmp_path])
