"""A TUN device without packet information: one read or write is one IP packet.

The device disappears with its file descriptor, and with it every address and route on it, also when the process is
killed. Its MTU and addresses are set by netlink (qtunnel.linux.host).
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
from collections import Counter
from typing import Final

from qtunnel.burst import MAX_BURST
from qtunnel.errors import SystemSetupError

__all__ = ["Tun"]

TUN_DEVICE: Final = "/dev/net/tun"
_TUNSETIFF: Final = 0x400454CA
_SIOCSIFMTU: Final = 0x8922
_IFF_TUN: Final = 0x0001
_IFF_NO_PI: Final = 0x1000
_MAX_PACKET: Final = 65535
_DETACHED: Final = frozenset((errno.EBADFD, errno.EBADF, errno.ENODEV))
"""What a read says once the interface was deleted behind our back. The descriptor then stays readable for ever."""


class Tun:
    """A TUN device (qtunnel.burst.TunEdge). Not thread-safe.

    name: the interface as the kernel named it. detached: the interface was deleted; there is nothing to read any
    more and the owner should close it. read_errors, write_errors: how often the kernel refused, by errno.
    """

    __slots__ = ("_buffer", "_buffers", "_fd", "detached", "name", "read_errors", "write_errors")

    def __init__(self, fd: int, name: str) -> None:
        """Take over an open, attached, non-blocking descriptor."""
        self._fd = fd
        self.name = name
        self.detached = False
        self.read_errors: Counter[int] = Counter()
        self.write_errors: Counter[int] = Counter()
        self._buffer = memoryview(bytearray(_MAX_PACKET))
        self._buffers = [self._buffer]

    @classmethod
    def open(cls, name: str = "qtun%d", mtu: int | None = None, *, device: str = TUN_DEVICE) -> Tun:
        """Make a TUN interface; %d in name becomes the first free number. It is down and has no address.

        mtu: IP packet size in bytes; None leaves the kernel's 1500.

        Raises:
            SystemSetupError: no TUN driver, no permission, or the name is taken; says what to type.
        """
        try:
            fd = os.open(device, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise _open_error(error, device) from error
        try:
            request = struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI)
            try:
                granted = fcntl.ioctl(fd, _TUNSETIFF, request)
            except OSError as error:
                raise _attach_error(error, name) from error
            tun = cls(fd, granted[:16].rstrip(b"\0").decode())
            if mtu is not None:
                _set_mtu(tun.name, mtu)
        except BaseException:
            os.close(fd)
            raise
        return tun

    def fileno(self) -> int:
        """Return the descriptor to poll; -1 when closed."""
        return self._fd

    def close(self) -> None:
        """Close the descriptor, which deletes the interface. A second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def read_burst(self) -> list[bytes]:
        """Return at most MAX_BURST packets, in order; empty when nothing waits or the interface is gone.

        Errors are counted, never raised.
        """
        packets: list[bytes] = []
        fd, buffer, buffers = self._fd, self._buffer, self._buffers
        try:
            for _ in range(MAX_BURST):
                size = os.readv(fd, buffers)
                if not size:
                    break
                packets.append(bytes(buffer[:size]))
        except BlockingIOError:
            pass
        except OSError as error:
            self._on_error(error, self.read_errors)
        return packets

    def write_burst(self, packets: list[bytes]) -> int:
        """Write the packets in order; return how many the kernel took. Refused ones are counted and lost.

        The kernel refuses what is neither IPv4 nor IPv6 (EINVAL), and all while the interface is down (EIO).
        """
        taken = 0
        fd = self._fd
        for packet in packets:
            try:
                os.write(fd, packet)
            except OSError as error:
                self._on_error(error, self.write_errors)
            else:
                taken += 1
        return taken

    def _on_error(self, error: OSError, counter: Counter[int]) -> None:
        code = error.errno or 0
        counter[code] += 1
        if code in _DETACHED:
            self.detached = True


def _open_error(error: OSError, device: str) -> SystemSetupError:
    if error.errno in (errno.ENOENT, errno.ENODEV, errno.ENXIO):
        return SystemSetupError(
            f"there is no TUN driver ({device}: {error.strerror})",
            remedy=f"Type: modprobe tun; if {device} is still missing: "
            f"mkdir -p {os.path.dirname(device)} && mknod {device} c 10 200 (in a container, give it the device "
            "from outside)",
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return SystemSetupError(
            f"may not open {device} ({error.strerror})", remedy="Run as root or with CAP_NET_ADMIN"
        )
    return SystemSetupError(f"cannot open {device} ({error.strerror})")


def _attach_error(error: OSError, name: str) -> SystemSetupError:
    if error.errno in (errno.EPERM, errno.EACCES):
        return SystemSetupError(
            f"may not make the TUN interface {name} ({error.strerror})", remedy="Run as root or with CAP_NET_ADMIN"
        )
    if error.errno in (errno.EBUSY, errno.EEXIST):
        return SystemSetupError(
            f"the interface name {name} is taken",
            remedy=f"Choose another tun_name, or see who has it: ip -d link show {name}",
        )
    if error.errno == errno.EINVAL:
        return SystemSetupError(
            f"the kernel takes no TUN interface named {name!r}: the name is not valid, or an interface of another "
            "kind has it",
            remedy=f"Choose another tun_name, or see who has it: ip -d link show {name}",
        )
    return SystemSetupError(f"cannot make the TUN interface {name} ({error.strerror})")


def _set_mtu(name: str, mtu: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as control:
        try:
            fcntl.ioctl(control, _SIOCSIFMTU, struct.pack("16si20x", name.encode(), mtu))
        except OSError as error:
            raise SystemSetupError(f"the kernel refused an MTU of {mtu} for {name} ({error.strerror})") from error
