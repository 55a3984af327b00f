"""The few system calls that Python does not offer: mount, umount2, openat2.

Invariant: every failure is an OSError with the path in it, and every descriptor made here is closed on exec.
"""

from __future__ import annotations

import ctypes
import os
import struct

SOURCE = "temper"  # what our mounts are called in the mount table
MS_NOSUID = 2
MS_NODEV = 4
MNT_DETACH = 2
SYS_OPENAT2 = 437  # the same number on every architecture
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08
BENEATH = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_ulong,
    ctypes.c_char_p,
)
_libc.umount2.argtypes = (ctypes.c_char_p, ctypes.c_int)
_libc.syscall.restype = ctypes.c_long


def _failed(path: str | bytes) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), os.fsdecode(path))


def mount_tmpfs(target: str, *, size: int, inodes: int, flags: int) -> None:
    """Mount a tmpfs of at most `size` bytes and `inodes` files at `target`. OSError."""
    options = f"size={size},nr_inodes={inodes},mode=755".encode()
    if _libc.mount(SOURCE.encode(), os.fsencode(target), b"tmpfs", flags, options):
        raise _failed(target)


def unmount(target: str) -> None:
    """Detach what is mounted at `target`, even when it is busy. OSError when nothing is."""
    if _libc.umount2(os.fsencode(target), MNT_DETACH):
        raise _failed(target)


def open_beneath(dirfd: int, name: bytes, flags: int) -> int:
    """Open `name` below `dirfd`, following no link of any kind; never waits (O_NONBLOCK). OSError."""
    flags |= os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW
    how = struct.pack("=QQQ", flags, 0, BENEATH)
    fd = int(_libc.syscall(SYS_OPENAT2, ctypes.c_int(dirfd), name, how, ctypes.c_size_t(len(how))))
    if fd < 0:
        raise _failed(name)
    return fd
