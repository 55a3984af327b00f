"""The proxy of one job: a thread of the verifier with a loop of its own.

Invariant: `stop` ends it within its deadline; after that neither a thread nor a socket of it is left, and its log says
what became of every connection (all are counted, a bounded number described).
"""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from functools import partial

from services.verifier.network.addresses import refuse_address
from services.verifier.network.allow import Allow
from services.verifier.network.dial import Refuse, Resolve
from services.verifier.network.limits import ProxyLimits, Record
from services.verifier.network.relay import Relay
from services.verifier.network.resolve import resolve as system_resolve

START_S = 5.0
STOP_S = 5.0
MAX_LINE = 300

Log = tuple[str, ...]
"""One line a connection, in the order of their beginnings; the last line counts those that are not described."""


class ProxyError(RuntimeError):
    """The proxy could not be started or stopped: a fault of ours, not of the job."""


class Proxy:
    """Serves HTTP requests and CONNECT on `listener`, a listening TCP socket (of any network namespace).

    The proxy owns the socket from now on and closes it. `resolve` maps a host's normal form to addresses, `refuse`
    says why an address may not be connected to ("" when it may): both have strict defaults.
    """

    def __init__(
        self,
        listener: socket.socket,
        allow: Allow,
        *,
        resolve: Resolve = system_resolve,
        refuse: Refuse = refuse_address,
        limits: ProxyLimits | None = None,
    ) -> None:
        self.limits = limits or ProxyLimits()
        self._listener = listener
        self._relay = Relay(allow, resolve, refuse, self.limits)
        self._records: list[Record] = []
        self._accepted = 0
        self._asked = False
        self._failure: BaseException | None = None
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="network-proxy", daemon=True)

    def start(self) -> None:
        """Begin to serve. Raises ProxyError."""
        try:
            self._thread.start()
        except RuntimeError as error:  # no thread is to be had
            self._listener.close()
            raise ProxyError(f"the network proxy did not start: {error}") from error
        if self._ready.wait(START_S) and self._failure is None:
            return
        with suppress(ProxyError):  # that it did not start is the error to tell
            self.stop()
        raise ProxyError(f"the network proxy did not start: {self._failure or 'no answer'}")

    def stop(self) -> Log:
        """Break off what is still going on and return the log. Raises ProxyError when it does not end in time.

        Stopping twice, or without having started, is fine.
        """
        if self._thread.ident is None:
            self._listener.close()
            return ()
        self._asked = True  # before we look at the loop: one of the two sides sees the other
        if self._loop is not None and self._stopping is not None and self._thread.is_alive():
            with suppress(RuntimeError):  # the loop has ended by itself meanwhile: nothing is left to stop
                self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(STOP_S)
        if self._thread.is_alive():
            raise ProxyError(f"the network proxy did not stop within {STOP_S:g} s")
        if self._failure is not None:
            raise ProxyError(f"the network proxy failed: {self._failure}") from self._failure
        return self._log()

    def _log(self) -> Log:
        lines = [record.line()[:MAX_LINE] for record in self._records]
        more = self._accepted - len(lines)
        return (*lines, f"{more} more connections") if more else tuple(lines)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 (told by start or stop, in the thread that asked)
            self._failure = _first(error)
        finally:
            self._listener.close()
            self._ready.set()

    async def _serve(self) -> None:
        self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        if self._asked:
            return
        self._listener.settimeout(0)
        self._ready.set()
        accepting = asyncio.create_task(self._accept())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait((accepting, stopping), return_when=asyncio.FIRST_COMPLETED)
        if accepting.done():
            accepting.result()
        accepting.cancel()
        await asyncio.wait((accepting,))
        stopping.cancel()

    async def _accept(self) -> None:
        """Accept and serve until the job has had all its connections; those being served are broken off on cancel.

        While `at_once` are being served nothing is accepted, so that a flood costs the flooder and not us.
        """
        places = asyncio.Semaphore(self.limits.at_once)
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as serving:
            while self._accepted < self.limits.connections:
                await places.acquire()
                try:
                    client, _ = await loop.sock_accept(self._listener)
                except ConnectionAbortedError:  # it was gone again before it was taken out of the queue
                    places.release()
                    continue
                record = Record()
                if self._accepted < self.limits.log_lines:
                    self._records.append(record)
                self._accepted += 1
                task = serving.create_task(self._relay.serve(client, record))
                task.add_done_callback(partial(_over, client, places))
            self._listener.close()
        assert self._stopping is not None  # noqa: S101 (set before this was started)
        await self._stopping.wait()


def _over(client: socket.socket, places: asyncio.Semaphore, _: asyncio.Task[None]) -> None:
    """Free the place. The socket is closed already, except where the task was cancelled before its first step."""
    client.close()
    places.release()


def _first(error: BaseException) -> BaseException:
    """The first of a group of errors: the one that ended the others."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
