"""The kinds of constraint by public id. Invariant: an id that is not listed is an error; nothing passes by default.

Two ids exist in two forms, the family's own and the public one, told apart by their arguments. An id of the public sets that
cannot be checked here says why.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from services.verifier import specs
from services.verifier.families.constraints import (
    chains,
    custom,
    frame,
    keywords,
    layout,
    lengths,
    plain,
    ratios,
    shapes,
)
from services.verifier.families.constraints.kinds import Kind

__all__ = ["KINDS", "REFUSED", "Kind", "kind"]

KINDS: dict[str, tuple[Kind, ...]] = {}
"""id -> its forms."""
for _module in (plain, keywords, lengths, shapes, frame, ratios, chains, layout, custom):
    for _id, _kind in _module.KINDS.items():
        KINDS[_id] = (*KINDS.get(_id, ()), _kind)

REFUSED = {
    "words:start_verb": "it needs a tagger for parts of speech",
    "words:odd_even_syllables": "it needs a dictionary of syllables",
    "custom:reverse_newline": "it needs a list of countries that nobody disputes",
    "custom:word_reverse": "it needs to know what an English sentence is",
    "custom:character_reverse": "it needs to know what an English sentence is",
}
"""Public ids without a check -> why."""


def kind(constraint: Mapping[str, Any], where: str) -> Kind:
    """The kind and form that a constraint is of. Raises SpecError."""
    name = specs.text(constraint.get("id"), f"{where}.id")
    if name in REFUSED:
        raise specs.SpecError(f"{where}.id {name!r} cannot be checked here: {REFUSED[name]}")
    if name not in KINDS:
        near = (
            ", ".join(difflib.get_close_matches(name[:80], KINDS, n=3, cutoff=0.5)) or "see the list of kinds"
        )
        raise specs.SpecError(f"{where}.id {name[:80]!r} is no constraint ({near})")
    forms = KINDS[name]
    if len(forms) == 1:
        return forms[0]
    fitting = [form for form in forms if set(form.needs) & set(constraint)]
    if len(fitting) != 1:
        named = " or ".join(", ".join(form.needs) for form in forms)
        raise specs.SpecError(f"{where} ({name}) takes either {named}")
    return fitting[0]
