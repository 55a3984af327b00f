"""What a command of the verifier's runs, by its words. Invariant: pure; nothing is run, and what words do not show counts as run.

Three kinds. A `read` is made of programs of a closed list, which look at files and run none: it may see /t, and its exit code is
its own. A `check` is one Python file of /t (or a `-c` text): it may see /t, and is kept apart from what it starts
(inside/check.py). Everything else is a `run` of what the answer may have written: it never sees /t, and has to compare output,
for such a program can always exit 0.
"""

from __future__ import annotations

import ast
import posixpath
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from services.verifier.specs import SpecError

Kind = Literal["read", "check", "run"]
READERS = frozenset(
    {
        *("test", "[", "true", "false", ":", "echo", "printf", "cd", "pwd", "exit"),
        *(
            "cat",
            "head",
            "tail",
            "wc",
            "cmp",
            "diff",
            "grep",
            "egrep",
            "fgrep",
            "sort",
            "uniq",
            "cut",
            "tr",
            "comm",
        ),
        *("join", "paste", "nl", "od", "hexdump", "base64", "cksum", "seq", "expr", "jq"),
        *(
            "sha1sum",
            "sha256sum",
            "sha512sum",
            "md5sum",
            "stat",
            "ls",
            "basename",
            "dirname",
            "readlink",
            "realpath",
        ),
        *("rm", "rmdir", "mkdir", "touch", "cp", "mv", "ln", "chmod"),
    }
)
"""Programs and shell words that run no other program, whatever the files hold. Not git: a repository's filters are programs."""
SHELLS = ("sh", "dash", "bash")
PYTHON = re.compile(r"(?:/usr)?(?:/bin/)?python3(?:\.\d+)?")
OPTIONS = re.compile(r"-[IsSBEPuO]+")
KEYWORDS = ("!", "if", "then", "else", "elif", "while", "until", "do", "{", "}", "time", "done", "fi")
PARTING = ";|&()\n"
SETTING = re.compile(r"[a-z_][a-z0-9_]*=")
"""A variable that no program gives a meaning to: not PATH, LD_PRELOAD, ENV."""
WITHIN = re.compile(r"\$\(([^()`]*)\)|`([^`]*)`")
JOINED = re.compile(r"\d*>&\d")
IN_T = re.compile(r"(?:(?<![\w./-])/+(?:\./|w/+\.\./+)*|\.\./)t(?![\w.-])")
MODULES = ("runpy", "ctypes", "pty", "pickle", "marshal", "shelve", "multiprocessing")
CALLS = re.compile(r"os\.(?:system|exec[lv]\w*|spawn\w+|posix_spawnp?|startfile)|exec|eval")
DEPTH = 8


def kind(command: Mapping[str, Any], trusted: Mapping[str, str]) -> Kind:
    """The kind of a well-formed command."""
    if _checked(command, trusted) is not None:
        return "check"
    reads = _reads(command["argv"], trusted) if "argv" in command else _text(command["run"], trusted)
    return "read" if reads else "run"


def check(command: Mapping[str, Any], trusted: Mapping[str, str], where: str) -> None:
    """Raises SpecError for a command whose result an answer could write itself, or which would show it /t."""
    found = kind(command, trusted)
    if found == "run":
        if "stdout" not in command:
            raise SpecError(
                f"{where} runs what the answer wrote, whose exit code is its own: give stdout too"
            )
        words = command["argv"] if "argv" in command else (command["run"],)
        if any(IN_T.search(word) for word in words):
            raise SpecError(
                f"{where} names /t and runs what the answer may have written, which could read it there: let a check of"
                " its own, `python3 /t/NAME.py`, start that program with subprocess"
            )
    elif found == "check":
        _sound(_checked(command, trusted) or "", where)


def vector(command: Mapping[str, Any], trusted: Mapping[str, str], runner: str) -> tuple[str, ...]:
    """The argument vector; that of a check begins with `runner`, which runs it apart."""
    words = tuple(command["argv"]) if "argv" in command else ("/bin/sh", "-c", command["run"])
    if _checked(command, trusted) is None:
        return words
    words = tuple(_plain(command) or ())
    at = _options(words)
    return (*words[:at], runner, *words[at:])


def _plain(command: Mapping[str, Any]) -> list[str] | None:
    """The words of a command that no shell changes; None if one may."""
    if "argv" in command:
        return list(command["argv"])
    text = command["run"]
    tokens = _tokens(text)
    if tokens is None or set("$`\\") & set(text):
        return None
    inline = tokens.index("-c") + 1 if "-c" in tokens else -1
    special = any(set(token) & set("<>*?[~#{}" + PARTING) for n, token in enumerate(tokens) if n != inline)
    return None if special else tokens


def _options(words: Sequence[str]) -> int:
    """How many words stand before a Python's script or `-c`."""
    at = 1
    while at < len(words) and OPTIONS.fullmatch(words[at]):
        at += 1
    return at


def _checked(command: Mapping[str, Any], trusted: Mapping[str, str]) -> str | None:
    """The Python text of a check; None if the command is none."""
    words = _plain(command)
    if not words or not PYTHON.fullmatch(words[0]):
        return None
    rest = words[_options(words) :]
    if rest[:1] == ["-c"] and len(rest) > 1:
        return rest[1]
    return trusted.get(rest[0].removeprefix("/t/")) if rest and rest[0].startswith("/t/") else None


def _sound(text: str, where: str) -> None:
    """Raises SpecError for a check that starts a program in a way which would not keep it apart."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise SpecError(f"{where}: the check is no Python: {error}") from error
    for node in ast.walk(tree):
        names = (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        used = [name for name in names if name.partition(".")[0] in MODULES]
        if isinstance(node, ast.Call) and CALLS.fullmatch(ast.unparse(node.func)):
            used = [ast.unparse(node.func)]
        if used:
            raise SpecError(
                f"{where}: line {node.lineno} of the check uses {used[0]}, which would show the answer's code what the check"  # type: ignore[attr-defined]
                " knows: start its program with subprocess"
            )


def _tokens(text: str) -> list[str] | None:
    """Words and what parts them; None for open quotes."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=PARTING)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    try:
        return list(lexer)
    except ValueError:
        return None


def _text(text: str, trusted: Mapping[str, str], depth: int = DEPTH) -> bool:
    """Whether a shell text only reads."""
    if not depth:
        return False
    text = JOINED.sub(" ", text)
    while (found := WITHIN.search(text)) is not None:
        if not _text(found[1] or found[2] or ":", trusted, depth - 1):
            return False
        text = text[: found.start()] + "x" + text[found.end() :]
    tokens = _tokens(text)
    if tokens is None or "$(" in text or "`" in text or "<(" in text or "<<" in text:
        return False
    words: list[str] = []
    for token in [*tokens, ";"]:
        if not set(token) <= set(PARTING):
            words.append(token)
            continue
        while words and (words[0] in KEYWORDS or SETTING.match(words[0])):
            words.pop(0)
        if words and words[0] != "for" and not _reads(words, trusted, depth):
            return False
        words = []
    return True


def _reads(words: Sequence[str], trusted: Mapping[str, str], depth: int = DEPTH) -> bool:
    """Whether one command only reads."""
    above, name = posixpath.split(words[0])
    if above not in ("", "/bin", "/usr/bin"):
        return False
    if name in READERS:
        return not any(word.startswith("--comp") for word in words) or name != "sort"
    if name not in SHELLS:
        return False
    rest = [word for word in words[1:] if word not in ("-e", "-u", "-eu")]
    if rest[:1] == ["-c"] and len(rest) > 1:
        return _text(rest[1], trusted, depth - 1)
    script = trusted.get(rest[0].removeprefix("/t/")) if rest and rest[0].startswith("/t/") else None
    if script is None:
        return False
    lines = [line for line in script.split("\n") if not line.lstrip().startswith("#")]
    return _text("\n".join(lines), trusted, depth - 1)
