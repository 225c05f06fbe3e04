"""System calls that no rank may make: those that reach other ranks, or hold uncounted memory.

    record locks, flock, inotify      what one rank does to a file that all see, the others can tell
    memfd, System V, shared maps,     memory that no process is counted for, or no limit counts
      stacks that grow by themselves
    fork, unshare, setns              other processes, other rights
    keyctl, io_uring, bpf, …          ways around all of this, which no answer needs

The filter is a program for the kernel's own small machine (BPF): it loads a word of the call,
compares, and returns what to do. It cannot be taken off, and threads inherit it.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct

# By machine: its number in <linux/audit.h>, and where x86's other calls for 64 bits begin.
_ARCHITECTURES = {"x86_64": (0xC000003E, 0x40000000), "aarch64": (0xC00000B7, 0xFFFFFFFF)}
_CALLS = {  # by name: the numbers on x86_64 and aarch64; −1: there is none
    "mmap": (9, 222),
    "shmget": (29, 194),
    "socket": (41, 198),
    "clone": (56, 220),
    "fork": (57, -1),
    "vfork": (58, -1),
    "semget": (64, 190),
    "msgget": (68, 186),
    "fcntl": (72, 25),
    "flock": (73, 32),
    "mq_open": (240, 180),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "inotify_init": (253, -1),
    "unshare": (272, 97),
    "inotify_init1": (294, 26),
    "perf_event_open": (298, 241),
    "fanotify_init": (300, 262),
    "setns": (308, 268),
    "memfd_create": (319, 279),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "clone3": (435, 435),
    "memfd_secret": (447, 447),
}
_LOAD, _EQUAL, _ABOVE, _ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_NUMBER, _MACHINE, _ARGUMENT = 0, 4, 16  # where they lie in struct seccomp_data
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_SHARED, _GROWS, _THREAD, _DUPFD_CLOEXEC, _INET6 = 1, 0x100, 0x10000, 1030, 10
_SET_SECCOMP, _FILTER, _NO_NEW_PRIVS = 22, 2, 38

Step = tuple[int, int, int, int]  # what, how many steps to skip if so and if not, a number
_yes: Step = (_RETURN, 0, 0, _ALLOW)
_no: Step = (_RETURN, 0, 0, _ERROR | errno.EPERM)


def _load(offset: int) -> Step:
    return (_LOAD, 0, 0, offset)


def _at_most(argument: int, most: int, also: int) -> list[Step]:
    """Let pass where the argument is no more than ``most``, or is ``also``."""
    return [_load(_ARGUMENT + 8 * argument), (_EQUAL, 2, 0, also), (_ABOVE, 0, 1, most), _no, _yes]


def _bit(argument: int, mask: int, if_set: Step, if_not: Step) -> list[Step]:
    return [_load(_ARGUMENT + 8 * argument), (_ANY_BIT, 0, 1, mask), if_set, if_not]


_RULES: dict[str, list[Step]] = {  # all other calls in _CALLS are refused, whatever they ask
    "mmap": _bit(3, _SHARED | _GROWS, _no, _yes),
    "clone": _bit(0, _THREAD, _yes, _no),
    "clone3": [(_RETURN, 0, 0, _ERROR | errno.ENOSYS)],  # then the C library takes clone
    "fcntl": _at_most(1, 4, _DUPFD_CLOEXEC),  # duplicates and flags
    "socket": _at_most(0, 2, _INET6),  # not the families that are no namespace's own
}


def program(machine: str) -> list[Step]:
    """The filter for this kind of machine. OSError where none is known."""
    if machine not in _ARCHITECTURES:
        raise OSError(f"no filter for {machine}")
    number, foreign = _ARCHITECTURES[machine]
    steps = [
        _load(_MACHINE),
        (_EQUAL, 1, 0, number),
        _no,
        _load(_NUMBER),
        (_ABOVE, 0, 1, foreign - 1),
        _no,
    ]
    for name, numbers in _CALLS.items():
        at = numbers[list(_ARCHITECTURES).index(machine)]
        rule = _RULES.get(name, [_no])
        steps += [(_EQUAL, 0, len(rule), at), *rule] if at >= 0 else []
    return [*steps, _yes]


def install() -> None:
    """From here on this thread, and those that it starts, are held to it. OSError where not."""
    steps = program(platform.machine())
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    filtering = struct.pack("HP", len(steps), ctypes.addressof(code))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) or prctl(_SET_SECCOMP, _FILTER, filtering, 0, 0):
        raise OSError(ctypes.get_errno(), "no filter of system calls")
