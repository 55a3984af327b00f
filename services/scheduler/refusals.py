"""What a Redis that does not serve is told to the user as. Invariant: one line that says what, where and what to do.

The server's own words come first; after them what can be done about them. Unknown words are passed on as they are.
"""

from __future__ import annotations

from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    InvalidResponse,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
)

_LONGEST = 300
_RIGHTS = "~temper:* +eval +evalsha +script|load +hscan +hget +hset +hdel +del +exists +rename"
_WORDS: tuple[tuple[str, str], ...] = (
    ("NOREPLICAS", "too few replicas follow it: look at its min-replicas-to-write"),
    ("MISCONF", "it cannot write to its disk: look at its log and free some space"),
    ("OOM ", "it is full: raise its maxmemory"),
    ("WRONGTYPE", "something else lies under the key: delete it, or use another TEMPER_PREFIX"),
    ("READONLY", "it is a replica: name the primary in TEMPER_REDIS"),
    ("NOAUTH", "TEMPER_REDIS must name a user and a password"),
    ("WRONGPASS", "the user or the password in TEMPER_REDIS is wrong"),
    ("NOPERM", f"give its user these rights: {_RIGHTS}"),
    ("has no permissions", f"give its user these rights: {_RIGHTS}"),
    (
        "unknown command",
        "it lacks or hides a command: Redis 4 or newer, or Valkey, with EVAL, EVALSHA and SCRIPT is needed",
    ),
    (
        "Unknown Redis command",
        "it lacks or hides a command: Redis 4 or newer, or Valkey, with the hash commands is needed",
    ),
    ("wrong number of args", "it is too old: Redis 4 or newer, or Valkey, is needed"),
    ("Wrong number of args", "it is too old: Redis 4 or newer, or Valkey, is needed"),
)
_KINDS: tuple[tuple[type[Exception], str], ...] = (
    (NoPermissionError, f"give its user these rights: {_RIGHTS}"),
    (AuthenticationError, "look at the user and the password in TEMPER_REDIS"),
    (ReadOnlyError, "it is a replica: name the primary in TEMPER_REDIS"),
    (OutOfMemoryError, "it is full: raise its maxmemory"),
    (BusyLoadingError, "it is reading its data: wait"),
    (InvalidResponse, "what answers there is no Redis: look at TEMPER_REDIS"),
)


def refusal(error: BaseException, where: str, deadline_s: float) -> str:
    """One line for a failure of a call to Redis at `where` (an address without its password), which had `deadline_s`."""
    said = " ".join(str(error).split())[:_LONGEST]
    if isinstance(error, TimeoutError) or "Timeout" in type(error).__name__:
        return f"{where}: no answer within {deadline_s:g} s; is it up, and can it be reached from here?"
    for word, advice in _WORDS:
        if word in said:
            return f"{where}: {said}; {advice}"
    for kind, advice in _KINDS:
        if isinstance(error, kind):
            return f"{where}: {said or type(error).__name__}; {advice}"
    if isinstance(error, OSError) or (
        isinstance(error, RedisError) and "onnect" in said + type(error).__name__
    ):
        return f"{where}: {said or type(error).__name__}; is it up, and is TEMPER_REDIS right?"
    return f"{where}: {type(error).__name__}: {said}" if said else f"{where}: {type(error).__name__}"
