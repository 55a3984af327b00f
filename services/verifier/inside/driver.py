"""Runs one candidate in the jail, a child a case, and relays each child's value through the report descriptor.

Invariant: the report descriptor is closed in every process that runs the candidate, this process cannot be traced, and
nothing here knows an expected result. Frames on the report: kind (1 byte), case (4), length (4), payload.
"""

# ruff: noqa: BLE001, D103, E402, PLR0124, PTH123, S102, S307, SIM105 (runs what is jailed, whatever that raises, on few and cheap imports)
TYPE_CHECKING = False
import os
import select
import time
from _ctypes import call_function, dlopen, dlsym  # `ctypes` itself would cost a third of a run
from _json import encode_basestring_ascii as quoted  # so would `json`

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

REPORT = 9
HEAD = 5
PR_SET_DUMPABLE = 4
TICK = os.sysconf("SC_CLK_TCK")
# Kinds of frames: B built, S syntax error (payload: its type), V value (JSON), E exception (its type), N not JSON,
# T too slow, X died without an answer, L answer too large.


def write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def frame(kind: bytes, case: int, payload: bytes = b"") -> bytes:
    return kind + case.to_bytes(4, "big") + len(payload).to_bytes(4, "big") + payload


def read_all(descriptor: int) -> bytes:
    parts: list[bytes] = []
    while True:
        part = os.read(descriptor, 65536)
        if not part:
            return b"".join(parts)
        parts.append(part)


def plain(value: "Any", depth: int = 32) -> str:
    """JSON of `value`, or TypeError: exact about what is data, so that no method of the candidate's is the value."""
    if depth == 0:
        raise TypeError
    kind = type(value)
    if value is None:
        return "null"
    if kind is bool:
        return "true" if value else "false"
    if kind is int:
        return int.__repr__(value)
    if kind is float:
        if value != value or value in (float("inf"), float("-inf")):
            raise TypeError
        return float.__repr__(value)
    if kind is str:
        return quoted(value)
    if kind is list or kind is tuple:
        return "[" + ",".join([plain(item, depth - 1) for item in value]) + "]"
    if kind is dict:
        pairs = []
        for key, item in value.items():
            if type(key) is not str:
                raise TypeError
            pairs.append(quoted(key) + ":" + plain(item, depth - 1))
        return "{" + ",".join(pairs) + "}"
    raise TypeError


def child(answer: int, run: "Callable[[Any], Any]", case: "Any", encode: "Callable[[Any], str]") -> None:
    """In the child: run the candidate on one case and write one answer to its own pipe."""
    try:
        result = run(case)
    except BaseException as error:  # whatever the candidate raises, SystemExit too, is no value
        kind, payload = b"E", type(error).__name__.encode("utf-8", "replace")[:80]
    else:
        try:
            kind, payload = b"V", encode(result).encode("utf-8")
        except BaseException:
            kind, payload = b"N", type(result).__name__.encode("utf-8", "replace")[:80]
    write_all(answer, kind + len(payload).to_bytes(4, "big") + payload)


def used(pid: int) -> float:
    """CPU seconds of one process; judged by these, a case does not fail because the machine is busy."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def collect(pid: int, answer: int, deadline: float, cpu_s: float, cap: int) -> "tuple[bytes, bytes]":
    """The child's frame: (kind, payload). Takes what came within its time and nothing after the first frame."""
    data = b""
    poll = select.poll()
    poll.register(answer, select.POLLIN)
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            return b"T", b""
        if not poll.poll(min(left, 0.1) * 1000):
            if used(pid) >= cpu_s:
                return b"T", b""
            continue
        part = os.read(answer, 65536)
        if not part:
            return b"X", b""
        data += part
        if len(data) >= HEAD:
            size = int.from_bytes(data[1:HEAD], "big")
            if data[:1] not in (b"V", b"E", b"N"):
                return b"X", b""
            if size > cap:
                return b"L", b""
            if len(data) >= HEAD + size:
                return data[:1], data[HEAD : HEAD + size]


def attempt(
    run: "Callable[[Any], Any]",
    case: "Any",
    encode: "Callable[[Any], str]",
    order: "dict[str, Any]",
    end: float,
) -> bytes:
    """Fork, run one case, kill whatever is left of it; the frame's kind and payload in one."""
    answer, inner = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        os.close(REPORT)
        os.close(answer)
        child(inner, run, case, encode)
        os._exit(0)
    os.close(inner)
    try:
        kind, payload = collect(
            pid, answer, min(end, time.monotonic() + order["case_s"]), order["case_cpu_s"], order["cap"]
        )
        return kind + payload
    finally:
        os.close(answer)
        for kill, target in ((os.killpg, pid), (os.kill, pid)):
            try:
                kill(target, 9)
            except OSError:
                pass  # gone already, or not yet its own group
        os.waitpid(pid, 0)


def main() -> None:
    itself = dlopen(None, 0)  # type: ignore[arg-type]
    call_function(dlsym(itself, "prctl"), (PR_SET_DUMPABLE, 0, 0, 0, 0))
    begin = time.monotonic()
    order = eval(read_all(0))  # literals that the verifier wrote
    with open("/w/answer.py", "rb") as file:
        text = file.read().decode("utf-8")
    try:
        run, encode = build(order, text)
    except (
        BaseException
    ) as error:  # compiling is all that happens here; MemoryError and RecursionError count as well
        write_all(REPORT, frame(b"S", 0, type(error).__name__.encode()))
        return
    os.dup2(os.open("/dev/null", os.O_RDWR), 0)
    write_all(REPORT, frame(b"B", 0))
    for case, given in enumerate(order["cases"]):
        made = attempt(run, given, encode, order, begin + order["total_s"])
        write_all(REPORT, frame(made[:1], case, made[1:]))


def build(order: "dict[str, Any]", text: str) -> "tuple[Callable[[Any], Any], Callable[[Any], str]]":
    """(run, encode) for this kind of order; compiles the candidate and executes nothing of it. Raises what compile raises."""
    kind = order["kind"]
    if kind == "expression":
        compile(text.strip(), "answer", "eval")  # on its own, so that no bracket of ours completes it
        code = compile("lambda " + ",".join(order["params"]) + ": (" + text.strip() + "\n)", "answer", "eval")
        return lambda given: eval(code, {"__name__": "answer"})(*given), plain
    if kind == "function":
        code, entry = compile(text, "answer", "exec"), order["entry"]

        def call(given: "Any") -> "Any":
            scope = {"__name__": "answer"}
            exec(code, scope)
            return scope[entry](*given)  # type: ignore[operator]

        return call, plain
    cad: dict[str, Any] = {"__name__": "cad"}
    with open("/t/cad.py", "rb") as file:
        exec(compile(file.read(), "cad", "exec"), cad)
    try:
        code, script = compile(text.strip(), "answer", "eval"), False
    except SyntaxError:
        code, script = compile(text, "answer", "exec"), True

    def draw(_: "Any") -> "Any":
        scope = {name: cad[name] for name in cad["NAMES"]}
        if script:
            exec(code, scope)
            return scope["shape"]
        return eval(code, scope)

    return draw, lambda shape: plain(cad["nodes"](shape))


if __name__ == "__main__":
    main()
