"""Capabilities of the process: what it has, and giving up all but what is still needed.

The process stays root, whose files it may need, but a root without capabilities beyond those kept, and neither it
nor a program it starts can get them back.

Linux keeps capabilities per thread and gives them to threads started later. There is no call to take them from a
thread that runs already, so drop_privileges() belongs before the first one: resolving a name in an event loop
starts some.
"""

from __future__ import annotations

import ctypes
import os
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from qtunnel.errors import SystemSetupError

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["drop_privileges", "effective_capabilities", "has_capability", "require_capabilities"]

_Capability = IntEnum(
    "_Capability",
    "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE "
    "NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT "
    "SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE "
    "AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ "
    "PERFMON BPF CHECKPOINT_RESTORE",
    start=0,
)
_NAMES: Final = tuple(_Capability.__members__)
_NUMBERS: Final = {name: number for number, name in enumerate(_NAMES)}

_PR_CAPBSET_READ: Final = 23
_PR_CAPBSET_DROP: Final = 24
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_CAP_AMBIENT: Final = 47
_PR_CAP_AMBIENT_RAISE: Final = 2
_PR_CAP_AMBIENT_CLEAR_ALL: Final = 4
_CAPABILITY_VERSION_3: Final = 0x20080522
_MAX_CAPABILITIES: Final = 64
_SETS: Final = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")

_libc = ctypes.CDLL(None, use_errno=True)


def has_capability(name: str) -> bool:
    """Return whether this thread may use a capability now, such as "NET_ADMIN"."""
    return name in effective_capabilities()


def effective_capabilities() -> frozenset[str]:
    """Return the names of the capabilities this thread may use now; unknown ones by number."""
    return _to_names(_status(Path("/proc/thread-self/status"))["CapEff"])


def require_capabilities(names: Collection[str], purpose: str) -> None:
    """Check that the process may do what is to come.

    Raises:
        SystemSetupError: a capability is missing; purpose ("make a TUN device") is part of the message.
    """
    missing = sorted(set(names) - effective_capabilities())
    if missing:
        words = " and ".join(f"CAP_{name}" for name in missing)
        raise SystemSetupError(f"to {purpose}, {words} is needed", remedy="Run as root (sudo), or as a service")


def drop_privileges(keep: Collection[str] = ("NET_ADMIN",)) -> None:
    """Give up, for good and for programs started later, every capability but those in keep (if we have them).

    Sets no_new_privs, and checks the result of every thread in /proc. A second call with fewer is fine.

    Raises:
        SystemSetupError: the kernel refused a part, or a thread that was started before keeps more.
    """
    unknown = sorted(set(keep) - set(_NAMES))
    if unknown:
        raise SystemSetupError(f"there is no capability {', '.join(unknown)}")
    before = _status(Path("/proc/thread-self/status"))
    kept = _to_mask(keep) & before["CapPrm"]
    _drop_bounding_set(kept, before["CapEff"])
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, what="clear the ambient capabilities")
    _set_capabilities(kept)
    for number in range(_MAX_CAPABILITIES):
        if kept >> number & 1:
            # A program started by us gets them also where we are not root (a service with AmbientCapabilities).
            _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, number, what="keep a capability for started programs")
    _prctl(_PR_SET_NO_NEW_PRIVS, 1, what="set no_new_privs")
    _verify(kept)


def _drop_bounding_set(kept: int, effective: int) -> None:
    """Take away what an executed program could gain. Needs SETPCAP; without it no_new_privs does the same."""
    if not effective >> _NUMBERS["SETPCAP"] & 1:
        return
    for number in range(_MAX_CAPABILITIES):
        if not kept >> number & 1 and _libc.prctl(_PR_CAPBSET_READ, number, 0, 0, 0) == 1:
            _prctl(_PR_CAPBSET_DROP, number, what="shrink the capability bounding set")


def _set_capabilities(mask: int) -> None:
    """Make mask the effective, permitted and inheritable set."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    low, high = mask & 0xFFFFFFFF, mask >> 32
    data = (ctypes.c_uint32 * 6)(low, low, low, high, high, high)
    if _libc.capset(header, data):
        raise _refusal("give up capabilities")


def _prctl(option: int, *arguments: int, what: str) -> None:
    padded = [ctypes.c_ulong(argument) for argument in (*arguments, 0, 0, 0, 0)[:4]]
    if _libc.prctl(option, *padded):
        raise _refusal(what)


def _refusal(what: str) -> SystemSetupError:
    return SystemSetupError(
        f"cannot {what} ({os.strerror(ctypes.get_errno())})",
        remedy="Switch it off (drop_privileges = false) where a sandbox around the process already does this",
    )


def _verify(kept: int) -> None:
    """Read back what every thread has. The bounding set counts only where no_new_privs does not hold."""
    late = 0
    own = str(_thread_id())
    for task in Path("/proc/self/task").iterdir():
        try:
            status = _status(task / "status")
        except SystemSetupError:
            continue  # it ended meanwhile
        excess = status["CapPrm"] | status["CapEff"] | status["CapInh"] | status["CapAmb"]
        if not status["NoNewPrivs"]:
            excess |= status["CapBnd"]
        if not excess & ~kept:
            continue
        if task.name == own:
            raise SystemSetupError("the kernel left us capabilities that were given up")
        late += 1
    if late:
        raise SystemSetupError(
            f"{late} threads of this process were started before privileges were dropped, and keep theirs",
            remedy="Drop privileges before resolving names or starting threads, or set drop_privileges = false",
        )


def _thread_id() -> int:
    return int(os.readlink("/proc/thread-self").rpartition("/")[2])


def _status(path: Path) -> dict[str, int]:
    """Return the capability sets and NoNewPrivs of a status file."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise SystemSetupError(f"cannot read {path} ({error.strerror})", remedy="Mount /proc") from error
    fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    status = {name: int(fields.get(name, "0"), 16) for name in _SETS}
    status["NoNewPrivs"] = int(fields.get("NoNewPrivs", "0"))
    return status


def _to_mask(names: Collection[str]) -> int:
    return sum(1 << _NUMBERS[name] for name in set(names))


def _to_names(mask: int) -> frozenset[str]:
    return frozenset(
        _NAMES[number] if number < len(_NAMES) else str(number)
        for number in range(_MAX_CAPABILITIES)
        if mask >> number & 1
    )
