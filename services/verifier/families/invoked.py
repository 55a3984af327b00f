"""Whether a command runs what the answer wrote, by its words. Invariant: pure; nothing is run, and no file is looked at.

Such a command's exit code is the answer's own, so it proves nothing. What words cannot tell (a script of the task's that starts
the answer's program) is the task's own affair.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Sequence

INTERPRETERS = ("python", "sh", "bash", "dash", "node", "perl", "ruby")
RUNNERS = ("make", "pytest", "tox", "npm", "source", ".")
"""Commands that run files of the working folder by themselves."""
BEFORE = (
    "!",
    "if",
    "then",
    "else",
    "elif",
    "while",
    "until",
    "do",
    "{",
    "time",
    "exec",
    "env",
    "timeout",
    "nice",
    "command",
)
"""Words that may stand before a command's own."""
PARTING = ";|&()\n"
SETTING = re.compile(r"[A-Za-z_]\w*=|-|\d")
"""Words before a command's own: a variable, an option or a number of one of BEFORE."""
WITHIN = re.compile(r"\$\(([^()]*)\)|`([^`]*)`")
TRUSTED = ("/t/", "/usr/", "/bin/", "/sbin/")


def by_words(argv: Sequence[str]) -> bool:
    """Whether the program, or the script that an interpreter is given, is not one of the system or of /t."""
    words = list(argv[:1])
    if posixpath.basename(argv[0]).rstrip("0123456789.") in INTERPRETERS and "-c" not in argv[:-1]:
        words += [word for word in argv[1:] if not word.startswith("-")][:1]
    return any("/" in word and not posixpath.normpath(word).startswith(TRUSTED) for word in words) or (
        len(words) > 1 and "/" not in words[1]
    )


def in_shell(text: str) -> bool:
    """Whether a shell text runs, as one of its plain commands, what the answer may have written. By its words alone."""
    if any(in_shell(inner) for pair in WITHIN.findall(text) for inner in pair if inner):
        return True
    lexer = shlex.shlex(text, posix=True, punctuation_chars=PARTING)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    try:
        tokens = list(lexer)
    except ValueError:  # quotes left open: the shell will say so
        return False
    words: list[str] = []
    for token in [*tokens, ";"]:
        if not set(token) <= set(PARTING):
            words.append(token)
            continue
        while words and (words[0] in BEFORE or SETTING.match(words[0])):
            words.pop(0)
        if words and (words[0] in RUNNERS or by_words(words)):
            return True
        words = []
    return False
