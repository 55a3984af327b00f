"""Runs one candidate in the jail, a child a case, and relays each child's value through the report descriptor.

Invariant: the report descriptor is closed in every process that runs the candidate, this process cannot be traced, nothing
here knows an expected result, and no child finds the input of a case that it is not given: what passes here is wiped.
"""

# ruff: noqa: BLE001, D103, E402, PLR0124, PTH123, S102, SLF001 (runs what is jailed, whatever that raises, on few and cheap imports)
TYPE_CHECKING = False
import gc
import marshal

from services.verifier.inside.kit import (
    HEAD,
    REPORT,
    Clock,
    Watch,
    apart,
    feed,
    frame,
    gather,
    give_up,
    read_block,
    take_block,
    write_all,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from typing import Any

    Run = Callable[[Any], Any]
    Encode = Callable[[Any], str]
else:
    import posix as os  # `os` itself would cost a sixth of a run
# Kinds of frames: B built, S syntax error (payload: its type), V value (JSON), E exception (its type), N not JSON,
# T too slow, W the machine was, X died without an answer, L answer too large, D what was waited for a processor.
ANSWERS = (b"V", b"E", b"N")
ESCAPES = {34: '\\"', 92: "\\\\", **{code: f"\\u{code:04x}" for code in range(32)}}


def quoted(text: str) -> str:
    """A JSON string; importing `json` would cost a third of a run, and what `json` needs is not built in."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return '"' + text + '"'
    return '"' + text.translate(ESCAPES) + '"'


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


def serve(
    given: int, answer: int, call: "Run", encode: "Encode", write: "Callable[[int, bytes], None]"
) -> None:
    """In the child: run the candidate on each case that comes and write one answer to its own pipe."""
    while True:
        try:
            case = marshal.loads(read_block(given))  # noqa: S302 (the verifier wrote it)
        except EOFError:
            return
        try:
            result = call(case)
        except BaseException as error:  # whatever the candidate raises, SystemExit too, is no value
            kind, payload = b"E", named(error)
        else:
            try:
                kind, payload = b"V", encode(result).encode("utf-8")
            except BaseException:
                kind, payload = b"N", named(result)
        write(answer, kind + len(payload).to_bytes(4, "big") + payload)


def named(value: "Any") -> bytes:
    """The name of a value's type, as the interpreter keeps it and not as a metaclass tells it."""
    return type.__dict__["__name__"].__get__(type(value)).encode("utf-8", "replace")[:80]  # type: ignore[no-any-return]


class Child:
    """One process that runs the candidate, on one case or on several."""

    def __init__(
        self,
        make: "Callable[[], Run]",
        encode: "Encode",
        order: "dict[str, Any]",
        clock: Clock,
        case: bytearray,
    ) -> None:
        given, self.given = os.pipe()
        self.answer, answer = os.pipe()
        os.set_blocking(self.given, False)
        self.sent = os.write(self.given, case)  # most often all of it, so that the child need not wait
        leave = os._exit
        pid = os.fork()
        if pid == 0:
            try:
                os.setpgid(0, 0)
                os.dup2(order["null"], 0)
                for mine in (REPORT, self.given, self.answer, order["null"]):
                    os.close(mine)
                give_up()
                serve(given, answer, make(), encode, write_all)
            finally:
                leave(0)
        os.close(given)
        os.close(answer)
        self.cap, self.value = order["cap"], b""
        self.watch = Watch(clock, pid, order["case_s"], order["case_cpu_s"])

    def ask(self, case: "bytearray | memoryview") -> bytes:
        """A frame's kind and payload in one. The first case has been sent, or begun to be, already."""
        case, self.sent = memoryview(case)[self.sent :], 0
        kind = feed(self.given, case, self.watch) or gather(self.answer, self.watch, self.take)
        if kind in ANSWERS and self.watch.spent():
            return b"T"  # too slow, whether or not somebody looked in time
        return kind + self.value if kind in ANSWERS else kind

    def take(self, data: bytes) -> "bytes | None":
        """The first frame of the child's and nothing after it."""
        if len(data) < HEAD:
            return None
        size = int.from_bytes(data[1:HEAD], "big")
        if data[:1] not in ANSWERS:
            return b"X"
        if size > self.cap:
            return b"L"
        if len(data) < HEAD + size:
            return None
        self.value = data[HEAD : HEAD + size]
        return data[:1]

    def end(self) -> float:
        """Kill it and whatever it left; its CPU seconds, those of its own children included."""
        os.close(self.given)
        os.close(self.answer)
        return self.watch.end()[0]


def cases(order: "dict[str, Any]", make: "Callable[[], Run]", encode: "Encode", clock: Clock) -> None:
    """Each case in a child of its own, or, if they may share one, in the same until it gives no answer."""
    child = None
    for number in range(order["count"]):
        block = take_block(0)
        if child is None:
            child = Child(make, encode, order, clock, block)
        else:
            child.watch.again()
        made = child.ask(block)
        block[:] = bytes(len(block))
        if not order["share"] or made[:1] not in ANSWERS:
            cpu_s, child = child.end(), None
            if not order["share"] and made[:1] in ANSWERS and cpu_s >= order["case_cpu_s"]:
                made = b"T"
        write_all(REPORT, frame(made[:1], number, made[1:]))
        if clock.late:
            break
    if child is not None:
        child.end()
    write_all(REPORT, frame(b"D", 0, clock.last_words()))


def main() -> None:
    apart()
    order = marshal.loads(read_block(0))  # noqa: S302
    clock = Clock(order["total_s"], order["hard_s"])
    order["null"] = os.open("/dev/null", os.O_RDWR)
    with open("/w/answer.py", "rb") as file:
        text = file.read().decode("utf-8")
    try:
        make, encode = build(order, text)
    except BaseException as error:
        # Compiling is all that happens here; MemoryError and RecursionError count as well.
        write_all(REPORT, frame(b"S", 0, type(error).__name__.encode()))
        return
    write_all(REPORT, frame(b"B", 0))
    gc.freeze()
    cases(order, make, encode, clock)


def build(order: "dict[str, Any]", text: str) -> "tuple[Callable[[], Run], Encode]":
    """(a maker of what runs a case, encode); compiles the candidate and executes nothing of it. Raises what compile raises."""
    kind = order["kind"]
    if kind == "expression":
        compile(text.strip(), "answer", "eval")  # on its own, so that no bracket of ours completes it
        code = compile("lambda " + ",".join(order["params"]) + ": (" + text.strip() + "\n)", "answer", "eval")
        return lambda: lambda given: eval(code, {"__name__": "answer"})(*given), plain  # noqa: S307
    if kind == "function":
        code, entry = compile(text, "answer", "exec"), order["entry"]

        def load() -> "Run":
            scope: dict[str, Any] = {}

            def call(given: "Any") -> "Any":
                if not scope:
                    scope["__name__"] = "answer"
                    exec(code, scope)
                return scope[entry](*given)

            return call

        return load, plain
    from services.verifier.inside import cad

    try:
        code, script = compile(text.strip(), "answer", "eval"), False
    except SyntaxError:
        code, script = compile(text, "answer", "exec"), True

    def draw(_: "Any") -> "Any":
        scope: dict[str, Any] = {name: vars(cad)[name] for name in cad.NAMES}
        if script:
            exec(code, scope)
            return scope["shape"]
        return eval(code, scope)  # noqa: S307

    return lambda: draw, lambda shape: plain(cad.nodes(shape))


if __name__ == "__main__":
    main()
    os._exit(0)  # taking an interpreter apart costs a tenth of a run
