"""Runs a task's own check, written in Python, so that no program which it starts can learn what the check knows.

Invariant: only this process is in the group that may read /t. Whatever it starts with `subprocess` has left that group, and the
user that may signal this process, for good before it runs, and gets none of this process's streams; a way of running the
answer's code that would keep the group, or share this process, is refused with one line. The check is the task's, so it is kept
from mistakes and not from malice.

Command line: the check's own file and its arguments, or `-c`, its text and arguments. Imports nothing of /t, for the check may
run without that on its path.
"""

# ruff: noqa: D103, PTH110, PTH117, PTH123, S102, SLF001 (runs in the jail, where the check is what it is for)
import io
import os
import subprocess
import sys
from types import CodeType, ModuleType
from typing import Any

ID, OWN, REPORT = 1000, 1002, 9  # kit.py: JAILED_UID and JAILED_GID, REPORTER, REPORT
TRUSTED = "/t/"
OPEN = ("/w/", "/tmp/", "/dev/shm/")  # noqa: S108 (where the answer may write)
RUNNERS = ("os.exec", "os.posix_spawn", "os.system", "ctypes.dlopen", "pickle.find_class")
STREAMS = ("stdin", "stdout", "stderr")


def open_to_the_answer(path: object) -> bool:
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    return isinstance(path, str) and os.path.realpath(path).startswith(OPEN)


def of_the_answer(name: str) -> bool:
    """Whether code of this name comes from a file there. The library makes some up (`namedtuple_x`), which are none."""
    return open_to_the_answer(name) and (os.path.isabs(name) or os.path.exists(name))


def refuse(what: str) -> None:
    raise RuntimeError(f"a check may not {what}: start the answer's program with subprocess")


def watching(check: CodeType) -> Any:
    """The hook that every step of the interpreter passes (PEP 578); `check` itself may be executed once."""
    left = [check]

    def watch(event: str, arguments: "tuple[Any, ...]") -> None:
        if event == "exec":
            code, caller = arguments[0], sys._getframe(1).f_code.co_filename
            if left and code is left[0]:
                left.clear()
            elif caller.startswith(TRUSTED) or "runpy" in caller or of_the_answer(code.co_filename):
                refuse("execute text or files within itself")
        elif event == "open":
            if "importlib" in sys._getframe(1).f_code.co_filename and open_to_the_answer(arguments[0]):
                refuse("import what the answer may have written")
        elif event == "import":
            if open_to_the_answer(arguments[1]):
                refuse("import what the answer may have written")
        elif event in RUNNERS and os.getresgid() != (ID,) * 3:
            refuse(f"use {event}")

    return watch


def leave_in_children() -> None:
    """Have every process that `subprocess` starts leave user and group, and find none of our streams and descriptors."""
    begin = subprocess.Popen.__init__

    def started(
        self: Any, args: Any, bufsize: int = -1, executable: Any = None, *given: Any, **more: Any
    ) -> None:
        if len(given) > len(STREAMS):
            raise TypeError("in a check, give Popen's further arguments by name")
        more.update(zip(STREAMS, given))  # noqa: B905 (Python 3.9)
        for name in STREAMS:
            if more.get(name) is None:
                more[name] = subprocess.DEVNULL
        more.update(user=ID, group=ID, close_fds=True)
        begin(self, args, bufsize, executable, **more)

    subprocess.Popen.__init__ = started  # type: ignore[method-assign]


def one_user() -> None:
    """Let the check find one user, who owns the files: what asks for the real one would find that it may not write."""
    access = os.access

    def may(path: Any, mode: int, **more: Any) -> bool:
        return access(path, mode, **{**more, "effective_ids": True})

    os.access = may
    os.getuid, os.getgid = (lambda: ID), (lambda: ID)


def main() -> None:
    if os.getuid() != OWN or os.getegid() == ID:
        raise RuntimeError("this program was not started as a user and in a group of its own")
    os.setresuid(OWN, ID, OWN)  # so that nothing it starts can signal it: kit.py, `apart`
    with open("/proc/self/status", "rb") as status:
        late = b"\nNoNewPrivs:\t1" not in status.read()
    if late:
        import ctypes  # before the check may no longer

        if ctypes.CDLL(None, use_errno=True).prctl(38, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")
    os.close(REPORT)
    del sys.argv[0]
    if sys.argv[0] == "-c":
        name, text = f"{TRUSTED}-c", sys.argv.pop(1).encode()
    else:
        name = sys.argv[0]
        with io.open_code(name) as file:
            text = file.read()
    module = ModuleType("__main__")
    module.__dict__["__file__"] = name
    code = compile(text, name, "exec", dont_inherit=True)
    sys.modules["__main__"] = module
    leave_in_children()
    one_user()
    sys.addaudithook(watching(code))
    exec(code, module.__dict__)


if __name__ == "__main__":
    main()
