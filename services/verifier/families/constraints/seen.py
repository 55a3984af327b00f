"""What of a text a reader sees. Invariant: two texts that look alike in every font count alike; pure, linear in the text.

Without this an answer could say a forbidden word with an invisible character in its middle, or make a hundred words of
characters that nobody sees. Ranges: the property Default_Ignorable_Code_Point of Unicode (DerivedCoreProperties.txt), the marks
of interlinear annotation, and the control characters that are no white space.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]"
)
LIKE = str.maketrans(
    # Cyrillic and Greek letters, in folded case, that have the shape of a Latin one in small or in capital form.
    "\u0430\u0432\u0435\u043a\u043c\u043d\u043e\u0440\u0441\u0442\u0443\u0445\u0455\u0456\u0458\u04bb\u04cf\u0501\u051b\u051d"
    "\u03b1\u03b2\u03b5\u03b6\u03b7\u03b9\u03ba\u03bc\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7\u0131",
    "abekmhopctyxsijhldqw" + "abezhikmvoptyxi",
)


def visible(text: str) -> str:
    """`text` without the characters that nobody sees."""
    return UNSEEN.sub("", text)


def visible_in(value: Any) -> Any:
    """A constraint's arguments, the same done to every text in them."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, list):
        return [visible_in(each) for each in value]
    if isinstance(value, dict):
        return {name: visible_in(each) for name, each in value.items()}
    return value


def fold(text: str) -> str:
    """In folded case, with letters of other widths and styles as plain ones (NFKC)."""
    return unicodedata.normalize("NFKC", text).casefold()


def shape(word: str) -> str:
    """A folded word with letters of other scripts as the Latin ones that they look like."""
    return word if word.isascii() else word.translate(LIKE)
