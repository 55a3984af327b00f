from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from schemas.cards import Card, CardError, parse_card
from schemas.run import RunConfig
from services.runtime import settings
from services.runtime.settings import SettingsError, parse_overrides, resolve


def test_files_then_overrides_over_defaults(tmp_path: Path) -> None:
    first = tmp_path / "a.toml"
    first.write_text('seed = 3\n[training]\nsteps = 10\ngroup_size = 4\n[domains]\ninclude = ["code.*"]\n')
    second = tmp_path / "b.toml"
    second.write_text("[training]\nsteps = 20\n")
    config = resolve(
        [f"@{first}", "--trainer.lr=3e-4", f"@{second}", "--training.group-size", "16", "--name", "7"]
    )
    assert (config.seed, config.training.steps, config.training.group_size) == (3, 20, 16)
    assert config.trainer.lr == 3e-4
    assert config.name == "7"
    assert config.domains.include == ("code.*",)
    assert config.verifier == RunConfig().verifier


def test_override_values_are_toml_or_text() -> None:
    assert parse_overrides(
        ["--a.b", "[1, 2]", "--a.c=true", "--d", "some words", "--e=-1", '--f="quoted"']
    ) == {
        "a": {"b": [1, 2], "c": True},
        "d": "some words",
        "e": -1,
        "f": "quoted",
    }
    assert parse_overrides(["--a", "1\nb = 2"]) == {"a": "1\nb = 2"}


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--training.stpes", "3"], "unknown setting training.stpes; did you mean training.steps?"),
        (["--trianing.steps", "3"], "unknown setting trianing; did you mean training?"),
        (["--training.steps", "many"], "training.steps: expected `int`, got `str`"),
        (["--training.group-size", "1"], "training.group_size: expected `int` >= 2"),
        (["--seed"], "--seed has no value"),
        (["--seed", "--name"], "--seed has no value"),
        (["seed=3"], "neither @file.toml nor"),
        (["@absent.toml"], "absent.toml: cannot be read"),
        (["--model", "3"], "model: expected `object`"),
        (["--model.", "3"], "not a setting"),
    ],
)
def test_errors_name_the_key(argv: list[str], words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        resolve(argv)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_error_in_a_file_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("[sampler]\nslotz = 3\n")
    with pytest.raises(
        SettingsError, match=r"run\.toml: unknown setting sampler\.slotz; did you mean sampler\.slots"
    ):
        resolve([f"@{path}"])
    path.write_text("a = \n")
    with pytest.raises(SettingsError, match=r"run\.toml: not valid TOML"):
        resolve([f"@{path}"])


def test_process_reads_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(settings.to_json(RunConfig(seed=9, name="x")))
    env = {
        "TEMPER_KAFKA": "h:1",
        "TEMPER_CONFIG": str(path),
        "TEMPER_PREFIX": "p.",
        "TEMPER_HEALTH_PORT": "99",
    }
    process = settings.process("sampler", env)
    assert process.config == RunConfig(seed=9, name="x")
    assert process.run_dir == Path("runs/x")
    assert process.blobs == "runs/x/blobs"
    assert process.worker.startswith("sampler-")
    assert (process.kafka, process.redis, process.prefix, process.health_port) == ("h:1", "", "p.", 99)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({}, "TEMPER_KAFKA is not set"),
        ({"TEMPER_KAFKA": "h:1", "TEMPER_HEALTH_PORT": "http"}, "TEMPER_HEALTH_PORT"),
        ({"TEMPER_KAFKA": "h:1", "TEMPER_PREFIX": "a b"}, "TEMPER_PREFIX"),
        ({"TEMPER_KAFKA": "h:1", "TEMPER_CONFIG": "absent.json"}, "absent.json"),
    ],
)
def test_process_refuses_a_bad_environment(env: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        settings.process("sampler", env)


def numbers(schema: type[msgspec.Struct], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of all settings that hold a number, or may."""
    info = msgspec.inspect.type_info(schema)
    assert isinstance(info, msgspec.inspect.StructType)
    for field in info.fields:
        if isinstance(field.type, msgspec.inspect.StructType):
            yield from numbers(field.type.cls, (*path, field.name))
        elif isinstance(field.type, msgspec.inspect.IntType | msgspec.inspect.FloatType):
            yield (*path, field.name)


@pytest.mark.parametrize("value", ["inf", "-inf", "nan", str(1 << 70), "-1"])
def test_no_setting_is_infinite_no_number_beyond_64_bits_or_negative(value: str) -> None:
    paths = list(numbers(RunConfig))
    assert len(paths) > 50
    for path in paths:
        key = ".".join(path)
        with pytest.raises(SettingsError, match=rf"^{key}(:| is) ") as caught:
            resolve([f"--{key}", value])
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", ["inf", "-inf", "nan", str(1 << 70), "-1"])
def test_no_figure_of_a_card_is_infinite_no_number_beyond_64_bits_or_negative(value: str) -> None:
    head = 'name = "a"\nlayer = "tool"\nsummary = "s"\ngenerator = "m:f"\nverifier.family = "code"\n'
    parse_card(head, "here.toml")
    paths = list(numbers(Card))
    assert len(paths) > 25
    for path in paths:
        key = ".".join(path)
        with pytest.raises(CardError, match=key) as caught:
            parse_card(f"{head}{key} = {value}\n", "here.toml")
        assert "\n" not in str(caught.value)


def test_an_attempt_that_would_be_over_before_its_lease_is_refused() -> None:
    head = 'name = "a"\nlayer = "tool"\nsummary = "s"\ngenerator = "m:f"\nverifier.family = "code"\n'
    with pytest.raises(CardError, match=r"timeouts\.attempt_s = 20 is less than timeouts\.lease_s = 30"):
        parse_card(f"{head}timeouts.attempt_s = 20.0\n", "here.toml")
