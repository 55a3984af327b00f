from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from domains.adapters import ifeval
from schemas.tasks import Sample
from services.runtime.sources import load_rows
from services.verifier.families import format as family
from services.verifier.families.constraints import KINDS, REFUSED
from services.verifier.families.constraints.examples import EXAMPLES
from services.verifier.specs import SpecError

NULLS = {"keywords": None, "num_words": None, "relation": None, "N": None}


def record(*instructions: tuple[str, dict[str, Any]], prompt: str = "Write of rain.") -> dict[str, Any]:
    return {
        "key": 1,
        "prompt": prompt,
        "instruction_id_list": [name for name, _ in instructions],
        "kwargs": [NULLS | args for _, args in instructions],
    }


def test_every_public_kind_is_read_with_its_arguments() -> None:
    assert set(ifeval.ARGUMENTS) == set(EXAMPLES)
    for name, named in ifeval.ARGUMENTS.items():
        assert set(named) in [set(form.needs) for form in KINDS[name]]


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_a_record_of_each_kind_makes_a_spec_that_holds(name: str) -> None:
    args = {key: float(v) if type(v) is int else v for key, v in EXAMPLES[name].args.items()}
    made = ifeval.sample(record((name, args)))
    family.check_spec(made.spec, {})
    assert family.scores(EXAMPLES[name].good, made.spec["constraints"]) == [1.0]


def test_the_order_and_repeats_are_kept() -> None:
    war, peace = (
        ("keywords:frequency", {"keyword": word, "frequency": 2, "relation": "at least"})
        for word in ("war", "peace")
    )
    made = ifeval.sample(record(war, peace, ("punctuation:no_comma", {})))
    assert [each.get("keyword") for each in made.spec["constraints"]] == ["war", "peace", None]
    assert made.prompt == "Write of rain."
    assert 0.0 < made.difficulty < 1.0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (record(("words:start_verb", {})), "'words:start_verb' has no check"),
        (record(("made:up", {})), "'made:up' has no check"),
        (record(("count:numbers", {})), "argument 'N' is missing"),
        (record(("punctuation:no_comma", {"N": 3})), "no argument 'N'"),
        (record(prompt="x"), "no `instruction_id_list`"),
        (record(("punctuation:no_comma", {}), prompt=" "), "no `prompt`"),
        ({"prompt": "x", "instruction_id_list": ["punctuation:no_comma"], "kwargs": []}, "differ in length"),
        ({"prompt": "x", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [[]]}, "no table"),
    ],
)
def test_a_record_that_cannot_be_a_task_is_refused_by_name(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ifeval.RefusedError) as caught:
        ifeval.sample(given)
    assert said in str(caught.value)


def test_what_the_family_refuses_is_refused_there() -> None:
    made = ifeval.sample(record(("language:response_language", {"language": "tlh"})))
    with pytest.raises(SpecError, match="cannot be told apart"):
        family.check_spec(made.spec, {})
    assert not set(REFUSED) & set(ifeval.ARGUMENTS)


def test_a_file_becomes_a_data_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "in.jsonl"
    rows = [
        record(("detectable_format:title", {}), prompt="Write <<a>> title\u2028here."),
        record(("words:start_verb", {})),
        record(("count:numbers", {"N": 2.0})),
    ]
    source.write_text(
        "\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n\n", encoding="utf-8"
    )
    assert ifeval.main([str(source)]) == 0
    out, err = capsys.readouterr()
    assert "2 tasks, 1 refused" in err
    assert "1 refused: instruction 'words:start_verb' has no check here" in err
    (tmp_path / "tasks.jsonl").write_text(out, encoding="utf-8")
    made = load_rows(tmp_path / "tasks.jsonl")
    assert [type(each) for each in made] == [Sample, Sample]
    assert made[1].spec == {"constraints": [{"id": "count:numbers", "N": 2}]}


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b'{"prompt"', "line 1: not JSON"),
        (b"[]\n", "line 1: not an object"),
        (b"\xff", "not UTF-8"),
        (b"[" * 100_000, "line 1: not JSON"),
        (b"\n", "0 tasks"),
    ],
)
def test_a_broken_file_is_named_in_one_line(
    raw: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "in.jsonl"
    source.write_bytes(raw)
    assert ifeval.main([str(source)]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert ifeval.main([str(tmp_path / "absent.jsonl")]) == 2
