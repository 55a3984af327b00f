"""A card of which no answer could be judged is refused when it is loaded, with the key that its author wrote."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas.cards import Card, CardError, Limits, parse_card
from schemas.tasks import Task
from services.runtime.catalog import Catalog, CatalogError
from services.verifier import cards, cli, engine, families
from services.verifier.families import code
from services.verifier.families.driven import SLACK
from services.verifier.jail import Job, Outcome
from services.verifier.jail.job import MAX_SECONDS
from services.verifier.network import AllowError, network
from services.verifier.specs import SpecError

PROJECT = Path(__file__).resolve().parents[3]
CARD = 'name="d"\nlayer="tool"\nsummary="s"\ngenerator="m:f"\n[verifier]\nfamily="{}"\n'


def card(more: str = "", family: str = "code") -> Card:
    return parse_card(CARD.format(family) + more, "d.toml")


def one_line(text: str) -> bool:
    return bool(text) and "\n" not in text


def test_every_card_of_the_installation_is_taken() -> None:
    cards.check_all(Catalog.load((PROJECT / "domains",)))


@pytest.mark.parametrize("key", ["memory_mib", "pids", "output_kib", "disk_mib"])
def test_the_bounds_of_a_card_are_within_those_of_the_jail(key: str) -> None:
    """Least and most of each: one less or more is refused by its name, and the jail takes all between."""
    schema: dict[str, Any] = msgspec.json.schema(Limits)["$defs"]["Limits"]["properties"][key]
    for value in (schema["minimum"], schema["maximum"]):
        cards.check(card(f"[limits]\n{key}={value}\n"))
    for value in (schema["minimum"] - 1, schema["maximum"] + 1):
        with pytest.raises(CardError, match=rf"d.toml: Expected `int`.*\$.limits.{key}") as caught:
            card(f"[limits]\n{key}={value}\n")
        assert one_line(str(caught.value))


class LastLimits:
    """Remembers what a family asked the jail for."""

    def __init__(self) -> None:
        self.wall_s = 0.0

    def run(self, job: Job) -> Outcome:
        self.wall_s = max(self.wall_s, job.limits.wall_s)
        return Outcome(cause="infra", detail="a test")


@pytest.mark.parametrize("family", families.NAMES)
def test_a_wall_limit_that_a_family_cannot_lengthen_is_refused(family: str) -> None:
    most = MAX_SECONDS / cards.LONGER.get(family, 1)
    cards.check(card(f"[limits]\nwall_s={most}\n", family))
    if most < MAX_SECONDS:
        with pytest.raises(SpecError, match=r"limits.wall_s is 50000: .* at most 28800"):
            cards.check(card("[limits]\nwall_s=50000.0\n", family))


def test_the_family_asks_for_as_much_as_was_checked() -> None:
    spec = {"entry": "f", "kind": "expression", "params": ["q"], "cases": [{"args": [2], "want": 5}]}
    code.check_spec(spec, {})
    jail = LastLimits()
    limits = engine.jail_limits(card("[limits]\nwall_s=28800.0\n").limits)
    task = Task(id="t", domain="d", prompt="p", spec=spec)
    code.verify(task, {}, limits, b"q*2+1", jail)
    assert jail.wall_s == 28_800.0 * SLACK == MAX_SECONDS


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("yes", "write 'none' or allow:HOST:PORT"),
        ("allow:", "no list of targets"),
        ("allow:a.example", "port"),
        ("allow:10.0.0.1:80", "can never be reached: its address is private"),
        ("allow:[::1]:80", "can never be reached: its address is loopback"),
        ("allow:pypi.org:443,169.254.169.254:80", "169.254.169.254:80 can never be reached"),
    ],
)
def test_a_network_that_is_no_list_of_reachable_targets_is_refused(value: str, said: str) -> None:
    with pytest.raises(AllowError, match=said.replace("[", r"\[")) as caught:
        network(value)
    assert one_line(str(caught.value))
    with pytest.raises(SpecError, match=r"limits\.network: "):
        cards.check(card(f"[limits]\nnetwork='{value}'\n"))


def test_a_network_that_may_be_reached_is_taken() -> None:
    cards.check(card("[limits]\nnetwork='allow:pypi.org:443,1.1.1.1:80'\n"))


@pytest.mark.parametrize(
    ("family", "settings", "said"),
    [
        ("terminal", "x=1", "verifier.settings"),
        ("stages", "on_failure='later'", "verifier.settings.on_failure"),
        ("format", "credit='all'", "verifier.settings.credit"),
        ("code", "case_s=0.0", "verifier.settings.case_s"),
        ("code", "nothing=1", "verifier.settings"),
        ("geometry", "nothing=1", "verifier.settings"),
        ("call", "nothing=1", "verifier.settings"),
        ("document", "find='first'", "verifier.settings.find"),
    ],
)
def test_settings_that_the_family_does_not_know_are_refused(family: str, settings: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        cards.check(card(f"[verifier.settings]\n{settings}\n", family))


def test_the_service_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "d.toml"
    path.write_text(CARD.format("code") + "[limits]\nnetwork='yes'\n")
    with pytest.raises(CatalogError, match=rf"{path}: limits.network: ") as caught:
        cards.check_all(Catalog.load((tmp_path,)))
    assert one_line(str(caught.value))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CARD.format("oracle"), "`$.verifier.family`; choose one of code, terminal, document"),
        (CARD.format("code").replace("tool", "top"), "`$.layer`; choose one of foundation, tool"),
        (
            CARD.format("code") + "[ladder]\njoin='most'\n",
            "`$.ladder.join`; choose one of none, all, any, mean",
        ),
    ],
)
def test_a_word_that_is_none_of_a_few_is_answered_with_them(text: str, said: str) -> None:
    with pytest.raises(CardError) as caught:
        parse_card(text, "d.toml")
    assert said in str(caught.value)


def test_an_unknown_domain_is_called_that(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "d.toml").write_text(CARD.format("code"))
    (tmp_path / "t.json").write_text('{"id":"t","domain":"x.none","prompt":"p","spec":{}}')
    (tmp_path / "a").write_text("1")
    words = ["--task", str(tmp_path / "t.json"), "--answer", str(tmp_path / "a"), "--paths", str(tmp_path)]
    assert cli.main(["verify", *words]) == 2
    said = capsys.readouterr().err
    assert "unknown domain 'x.none'" in said
    assert "domains.include" not in said
    assert cli.main(["validate", "x.*", "--paths", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "unknown domain 'x.*'" in said
    assert "domains.include" not in said
    with pytest.raises(CatalogError, match=r"domains.include: 'x\.\*' matches none of the 1 domains"):
        Catalog.load((tmp_path,), ("x.*",))


@pytest.mark.parametrize("times", ["0", "-3", "two", "1.5", ""])
def test_a_number_of_verdicts_below_one_is_refused(times: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.parser().parse_args(["verify", "--task", "t", "--answer", "a", f"--repeat={times}"])
    assert caught.value.code == 2
    assert "give 1 or more" in capsys.readouterr().err
    with pytest.raises(argparse.ArgumentTypeError):
        cli.count(times)
