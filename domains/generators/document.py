"""Document domains: take fields out of a short record. Invariant: a slip has no wanted field right."""

from __future__ import annotations

import random
from typing import Any

from domains.generators.common import EASY, HARD, LETTERS, level, name, names, sample
from schemas.tasks import Sample

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
CURRENCIES = ("eur", "usd", "gbp", "jpy")


def _field(kind: str, want: str | float) -> dict[str, Any]:
    return {"type": kind, "want": want}


def pairs(rng: random.Random, difficulty: float, _options: dict[str, Any]) -> Sample:
    """`rec a:ef c:gh get c>` -> `c=gh`; two or three fields in the record, one or two wanted."""
    step = level(difficulty)
    keys = rng.sample(LETTERS, 2 if step == EASY else 3)
    values = names(rng, 2, len(keys))
    record = dict(zip(keys, values, strict=True))
    wanted = rng.sample(keys, 2 if step == HARD else 1)
    gold = ";".join(f"{key}={record[key]}" for key in wanted)
    slips = tuple(
        ";".join(f"{key}{mark}{record[key]}" if mark else record[key] for key in wanted)
        for mark in (":", "", " ")
    )
    spec = {"syntax": "pairs", "fields": {key: _field("text", record[key]) for key in wanted}}
    shown = " ".join(f"{key}:{value}" for key, value in record.items())
    return sample(difficulty, f"rec {shown} get {' '.join(wanted)}", gold, spec, slips)


def to_json(rng: random.Random, difficulty: float, _options: dict[str, Any]) -> Sample:
    """`row ab 34 cd>` -> `{"n":"ab","a":34,"c":"cd"}`: name, age, and at the third level the city."""
    step = level(difficulty)
    who, city = names(rng, (2, 3, 3)[step], 2)
    age = rng.randint(1, 9) if step == EASY else rng.randint(10, 99)
    fields = {"n": _field("text", who), "a": _field("number", age)}
    shown, gold, bare = f"{who} {age}", f'"n":"{who}","a":{age}', f"n:{who},a:{age}"
    if step == HARD:
        fields["c"] = _field("text", city)
        shown, gold, bare = f"{shown} {city}", f'{gold},"c":"{city}"', f"{bare},c:{city}"
    slips = (f"{{{bare}}}", "{" + gold.replace('"', "'") + "}", f"{{{gold}")
    return sample(difficulty, f"row {shown}", f"{{{gold}}}", {"syntax": "json", "fields": fields}, slips)


def dates(rng: random.Random, difficulty: float, _options: dict[str, Any]) -> Sample:
    """`on 14 May 24>` -> `d=2024-05-14`: ISO order; the simplest level names no month."""
    step = level(difficulty)
    year = rng.randint(*((20, 29), (20, 29), (10, 39))[step])
    month = rng.randint(1, 12)
    day = rng.randint(10, 28) if step == EASY else rng.randint(1, 28)
    shown = f"{day:02d}/{month:02d}/{year}" if step == EASY else f"{day} {MONTHS[month - 1]} {year}"
    gold = f"d=20{year}-{month:02d}-{day:02d}"
    # Only the form is wrong: a slip with day and month exchanged would be punished for its two-digit "month", and the
    # model then writes no two-digit day either.
    slips = (f"d:{gold[2:]}", gold[2:], f"d {gold[2:]}")
    spec = {"syntax": "pairs", "fields": {"d": _field("date", gold[2:])}}
    return sample(difficulty, f"on {shown}", gold, spec, slips)


def invoices(rng: random.Random, difficulty: float, _options: dict[str, Any]) -> Sample:
    """`inv ab 12.50 eur>` -> `id=ab;sum=12.50;cur=eur`; cents and the currency come with the levels."""
    step = level(difficulty)
    number = name(rng, (2, 2, 3)[step])
    whole, cents = rng.randint(1, 99), rng.randint(10, 99)
    amount = str(whole) if step == EASY else f"{whole}.{cents}"
    currency = rng.choice(CURRENCIES)
    fields = {"id": _field("text", number), "sum": _field("number", float(amount))}
    values = [("id", number), ("sum", amount)]
    if step == HARD:
        fields["cur"] = {"type": "enum", "want": currency, "values": list(CURRENCIES)}
        values.append(("cur", currency))
    shown = " ".join(value for _, value in values)
    slips = (
        ";".join(f"{key}:{value}" for key, value in values),
        ";".join(value for _, value in values),
        ",".join(f"{key}:{value}" for key, value in values),
    )
    gold = ";".join(f"{key}={value}" for key, value in values)
    return sample(difficulty, f"inv {shown}", gold, {"syntax": "pairs", "fields": fields}, slips)
