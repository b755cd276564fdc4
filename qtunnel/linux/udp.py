"""A UDP socket in bursts: GRO on the way in, UDP_SEGMENT on the way out, no exception for what the network says.

A socket with an error queue has a trap: an ICMP error about an earlier datagram fails the *next* send or receive,
whoever that is for, and that datagram is not sent. So whenever a call fails, the error queue is emptied (which
clears the pending error) and the call is made once more; only a second failure is about this datagram.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import struct
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from qtunnel.burst import MAX_BURST, SendResult
from qtunnel.linux.cmsg import (
    ANCILLARY_SIZE,
    SO_MEMINFO,
    SOL_UDP,
    UDP_GRO,
    AncillaryParser,
    packet_info,
    segment_size,
)
from qtunnel.linux.datagram_pile import DatagramPile, as_received
from qtunnel.linux.icmp_errors import parse_error
from qtunnel.linux.udp_options import OpenedSocket, open_udp_socket

if TYPE_CHECKING:
    from qtunnel.burst import Address, Received, Transmit
    from qtunnel.linux.cmsg import Ancillary
    from qtunnel.linux.icmp_errors import IcmpError

__all__ = ["UdpCounters", "UdpSocket"]

logger = logging.getLogger(__name__)

_READ_SIZE: Final = 65536
_BUFFER_SIZE: Final = 4 * _READ_SIZE
_MAX_ERRORS: Final = 256
"""Errors kept until read_errors() is called. The oldest go first: an error is only a hint."""
_MAX_ERROR_READS: Final = 1024
"""Enough for the errors of a server that many clients have left at once: what stays fails the next send."""
_MAX_FAILURES: Final = 64
_MAX_REFUSED_RECEIVES: Final = 4
"""In a row, with nothing received and nothing found empty between them."""
_MAX_LOCAL_ADDRESSES: Final = 1024
_MAX_SEGMENTS: Final = 64
_MAX_SEGMENTED: Final = 65493
"""Bounds of one segmented send. A kernel that refuses one beyond them has not shown that it cannot segment."""

_OFFLOAD_REFUSED: Final = frozenset((errno.EINVAL, errno.EIO, errno.EMSGSIZE))
_UNREACHABLE: Final = frozenset(
    (
        errno.ECONNREFUSED,
        errno.EHOSTUNREACH,
        errno.ENETUNREACH,
        errno.EHOSTDOWN,
        errno.ENETDOWN,
        errno.ENONET,
        errno.ENODEV,
        errno.EADDRNOTAVAIL,
        errno.EACCES,
    )
)
_PENDING: Final = _UNREACHABLE | {errno.EMSGSIZE, errno.ENOPROTOOPT, errno.EOPNOTSUPP, errno.EPROTO}
"""What an ICMP error about an earlier datagram can turn into."""
_TRUNCATED: Final = socket.MSG_TRUNC | socket.MSG_CTRUNC
_MEMINFO = struct.Struct("=9I")
_MEMINFO_DROPS: Final = 8


@dataclass(slots=True)
class UdpCounters:
    """Plain counters of one socket.

    send_errors, receive_errors: calls the kernel refused, by errno, after the retry; blocked: sends that found the
    buffer full. icmp_errors: errors read from the error queue; bad_errors: those that held nothing usable.
    gso_datagrams, gro_datagrams: how many of those sent and received were in one call with others.
    gso_fallbacks: segmented sends that were repeated datagram by datagram, and a refusal at the start.
    gro_fallbacks: 1 once the kernel has refused UDP_GRO, or to receive with it. partly_sent: datagrams of a
    repeated send that found the buffer full after the first was sent. truncated: thrown away as incomplete.
    """

    datagrams_received: int = 0
    bytes_received: int = 0
    receive_calls: int = 0
    datagrams_sent: int = 0
    bytes_sent: int = 0
    send_calls: int = 0
    gso_datagrams: int = 0
    gro_datagrams: int = 0
    blocked: int = 0
    gso_fallbacks: int = 0
    gro_fallbacks: int = 0
    partly_sent: int = 0
    truncated: int = 0
    icmp_errors: int = 0
    bad_errors: int = 0
    send_errors: Counter[int] = field(default_factory=Counter)
    receive_errors: Counter[int] = field(default_factory=Counter)


class UdpSocket:
    """One UDP socket of one address family (qtunnel.burst.UdpEdge). Not thread-safe.

    gso_available: segmented sends reach the kernel as such; False for good once it refused one. error_wakeups
    grows whenever the kernel reported an error: a poller that gives up on a descriptor after POLLERR (libuv does,
    silently) must add its reader again when it has changed. receive_buffer, send_buffer: bytes really had.
    receive_buffer_wanted: bytes asked for, None if the kernel's own was wanted.
    """

    __slots__ = (
        "_ancillary",
        "_buffer",
        "_buffers",
        "_errors",
        "_family",
        "_is_wildcard",
        "_local_names",
        "_logged",
        "_refused_receives",
        "_socket",
        "counters",
        "error_wakeups",
        "gro_available",
        "gso_available",
        "path_id",
        "receive_buffer",
        "receive_buffer_wanted",
        "send_buffer",
    )

    def __init__(self, opened: OpenedSocket, *, path_id: int = 0) -> None:
        """Take over an opened, configured, non-blocking socket."""
        self._socket = opened.socket
        self._family = opened.socket.family
        self.path_id = path_id
        self.gso_available = opened.gso
        self.gro_available = opened.gro
        self.receive_buffer = opened.receive_buffer
        self.receive_buffer_wanted = opened.receive_buffer_wanted
        self.send_buffer = opened.send_buffer
        self.counters = UdpCounters(gso_fallbacks=int(opened.gso_refused), gro_fallbacks=int(opened.gro_refused))
        self.error_wakeups = 0
        self._ancillary = AncillaryParser()
        self._buffer = memoryview(bytearray(_BUFFER_SIZE))
        self._buffers = [self._buffer]
        self._errors: deque[IcmpError] = deque(maxlen=_MAX_ERRORS)
        self._local_names: dict[bytes, str] = {}
        self._logged: set[int] = set()
        self._refused_receives = 0

    @classmethod
    def open(
        cls,
        local: Address,
        *,
        interface: str | None = None,
        gso: bool = True,
        gro: bool = True,
        receive_buffer: int | None = 4 * 1024 * 1024,
        send_buffer: int = 4 * 1024 * 1024,
        path_id: int = 0,
        mark: int | None = None,
    ) -> UdpSocket:
        """Open a socket bound to local (numeric host; "0.0.0.0" or "::" for any; port 0 for a free one).

        interface: send and receive by this one only (SO_BINDTODEVICE). Buffers in bytes; a
        receive_buffer of None is left as the kernel makes it. mark: the packet mark routing rules may look at.

        Raises:
            SystemSetupError: the address, port or interface cannot be had; says what to type.
        """
        opened = open_udp_socket(
            local,
            interface=interface,
            gso=gso,
            gro=gro,
            receive_buffer=receive_buffer,
            send_buffer=send_buffer,
            mark=mark,
        )
        return cls(opened, path_id=path_id)

    @property
    def local_address(self) -> Address:
        """The address the socket is bound to, with the port the kernel chose."""
        address: Address = self._socket.getsockname()
        return address

    def fileno(self) -> int:
        """Return the descriptor to poll; -1 when closed."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket. A second call does nothing; sends fail and receives are empty from then on."""
        self._socket.close()

    def drops(self) -> int:
        """Return how many datagrams the full receive buffer has cost (RcvbufErrors of this socket alone)."""
        try:
            data = self._socket.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, _MEMINFO.size)
            return int(_MEMINFO.unpack(data)[_MEMINFO_DROPS])
        except (OSError, struct.error):
            return self._ancillary.overflowed  # a kernel before 4.12, or closed: what the datagrams said

    # -- receiving

    def receive(self, max_datagrams: int = MAX_BURST) -> list[Received]:
        """Return what waits, oldest first; neighbours of one remote, local address and ECN mark share a Received.

        Stops at max_datagrams or up to one coalesced buffer (about 64 datagrams) more. Never raises: an ICMP error
        goes to read_errors(), anything else is counted.
        """
        failures = filled = count = 0
        piles: list[DatagramPile] = []
        ancillary = self._ancillary
        while count < max_datagrams and filled <= _BUFFER_SIZE - _READ_SIZE:
            self._buffers[0] = self._buffer[filled : filled + _READ_SIZE]
            try:
                size, items, flags, remote = self._socket.recvmsg_into(self._buffers, ANCILLARY_SIZE)
            except BlockingIOError:
                self._refused_receives = 0
                break
            except OSError as error:
                failures += 1
                if not self._on_receive_error(error) or failures > _MAX_FAILURES:
                    break
                continue
            if flags & _TRUNCATED:
                self.counters.truncated += 1
                continue
            ancillary.parse(items)
            segment = ancillary.segment_size if ancillary.segment_size > 0 else size
            last = piles[-1] if piles else None
            if last is None or not last.takes(size, segment, remote, ancillary):
                last = DatagramPile(filled, segment, remote, ancillary)
                piles.append(last)
            last.size += size
            filled += size
            datagrams = -(-size // segment) if size else 1
            count += datagrams
            if datagrams > 1:
                self.counters.gro_datagrams += datagrams
            self.counters.receive_calls += 1
        self.counters.bytes_received += filled
        self.counters.datagrams_received += count
        return as_received(piles, self._buffer, self._local_name, self.path_id)

    def _local_name(self, packed: bytes) -> str:
        name = self._local_names.get(packed)
        if name is None:
            if len(self._local_names) >= _MAX_LOCAL_ADDRESSES:
                self._local_names.clear()
            name = self._local_names[packed] = socket.inet_ntop(self._family, packed)
        return name

    def _on_receive_error(self, error: OSError) -> bool:
        """Note a failed receive; return whether trying again makes sense."""
        code = error.errno or errno.EIO
        self.error_wakeups += 1
        self._drain_errors()
        if self.gro_available and code in _OFFLOAD_REFUSED:
            self._on_refused_receive(code)
        if code in _PENDING:
            return True
        self.counters.receive_errors[code] += 1
        self._log_once(code, "receive")
        return False

    def _on_refused_receive(self, code: int) -> None:
        """Note a refusal that may be UDP_GRO's fault; after some in a row, receive without."""
        self._refused_receives += 1
        if self._refused_receives < _MAX_REFUSED_RECEIVES:
            return
        self.gro_available = False
        self.counters.gro_fallbacks += 1
        logger.warning(
            "path %d: the kernel refuses to receive many datagrams at once (%s); one by one from now on",
            self.path_id,
            os.strerror(code),
        )
        with contextlib.suppress(OSError):
            self._socket.setsockopt(SOL_UDP, UDP_GRO, 0)

    # -- errors

    def read_errors(self) -> list[IcmpError]:
        """Return the ICMP and local errors since the last call, oldest first; at most the last 256. Never raises.

        Call it on every wake-up of the descriptor, and after a send that was TOO_BIG or UNREACHABLE.
        """
        self._drain_errors()
        errors = list(self._errors)
        self._errors.clear()
        return errors

    def _drain_errors(self) -> None:
        """Move the error queue into _errors, which also clears the socket's pending error."""
        for _ in range(_MAX_ERROR_READS):
            try:
                data, items, _, remote = self._socket.recvmsg(2048, ANCILLARY_SIZE, socket.MSG_ERRQUEUE)
            except OSError:
                return  # EAGAIN: empty. Anything else (closed) leaves nothing to read either.
            self.error_wakeups += 1
            error = parse_error(items, remote, data)
            if error is None:
                self.counters.bad_errors += 1
            else:
                self.counters.icmp_errors += 1
                self._errors.append(error)

    # -- sending

    def send(self, transmit: Transmit) -> SendResult:
        """Send one Transmit; never raises.

        WOULD_BLOCK means that nothing was sent. When a segmented send has to be repeated datagram by datagram and
        the buffer is full after the first, the result is SENT and the rest is lost, as on any other queue of the
        network, and counted in partly_sent; any other refusal ends it and is the result.
        """
        segment = transmit.segment_size
        ancillary = self._send_ancillary(transmit.local)
        if ancillary is None:
            return SendResult.FAILED
        if not segment or segment >= len(transmit.data):
            code = self._send_with_retry(transmit.data, ancillary, transmit.remote)
            return self._result(code, len(transmit.data), 1)
        if self.gso_available:
            code = self._send_with_retry(transmit.data, [*ancillary, segment_size(segment)], transmit.remote)
            if code not in _OFFLOAD_REFUSED:
                count = -(-len(transmit.data) // segment)
                if not code:
                    self.counters.gso_datagrams += count
                return self._result(code, len(transmit.data), count)
            return self._send_one_by_one(transmit, segment, ancillary, refusal=code)
        return self._send_one_by_one(transmit, segment, ancillary, refusal=0)

    def _send_ancillary(self, local: str | None) -> list[Ancillary] | None:
        if local is None:
            return []
        try:
            return [packet_info(self._family, socket.inet_pton(self._family, local))]
        except (OSError, ValueError):
            self._count_failure(errno.EAFNOSUPPORT)
            return None

    def _send_with_retry(self, data: bytes | memoryview, ancillary: list[Ancillary], remote: Address) -> int:
        """Return 0 or the errno that is about this very datagram."""
        code = self._send_once(data, ancillary, remote)
        if code in _PENDING:
            self._drain_errors()
            code = self._send_once(data, ancillary, remote)
            if code:
                # An oversize send has put a local error into the queue, which would keep poll awake.
                self._drain_errors()
        return code

    def _send_once(self, data: bytes | memoryview, ancillary: list[Ancillary], remote: Address) -> int:
        try:
            self._socket.sendmsg((data,), ancillary, 0, remote)
        except OSError as error:
            return error.errno or errno.EIO
        except (OverflowError, ValueError):
            return errno.EINVAL  # a port or scope no address can have
        return 0

    def _send_one_by_one(
        self, transmit: Transmit, segment: int, ancillary: list[Ancillary], *, refusal: int
    ) -> SendResult:
        """Send a segmented Transmit datagram by datagram. refusal: why the kernel did not take it whole, or 0."""
        view = memoryview(transmit.data)
        total = len(view)
        count = -(-total // segment)
        for index, start in enumerate(range(0, total, segment)):
            piece = view[start : start + segment]
            code = self._send_with_retry(piece, ancillary, transmit.remote)
            if code in (errno.EAGAIN, errno.ENOBUFS) and index:
                self.counters.partly_sent += count - index
                break
            result = self._result(code, len(piece), 1)
            if result is not SendResult.SENT:
                return result
        if refusal:
            self._on_gso_refused(refusal, is_within_limits=count <= _MAX_SEGMENTS and total <= _MAX_SEGMENTED)
        return SendResult.SENT

    def _on_gso_refused(self, code: int, *, is_within_limits: bool) -> None:
        """Note that the datagrams went out singly after the kernel had refused them together."""
        self.counters.gso_fallbacks += 1
        if is_within_limits:
            self.gso_available = False
            logger.warning(
                "path %d: the kernel refused a segmented send (%s); sending datagram by datagram from now on",
                self.path_id,
                os.strerror(code),
            )

    def _result(self, code: int, size: int, datagrams: int) -> SendResult:
        """Count what the kernel said to one send and put it into our words."""
        if code == 0:
            self.counters.send_calls += 1
            self.counters.datagrams_sent += datagrams
            self.counters.bytes_sent += size
            return SendResult.SENT
        if code == errno.EAGAIN:
            self.counters.blocked += 1
            return SendResult.WOULD_BLOCK
        self._count_failure(code)
        if code == errno.EMSGSIZE:
            return SendResult.TOO_BIG
        if code in _UNREACHABLE:
            return SendResult.UNREACHABLE
        self._log_once(code, "send")
        return SendResult.FAILED

    def _count_failure(self, code: int) -> None:
        self.counters.send_errors[code] += 1

    def _log_once(self, code: int, what: str) -> None:
        if code not in self._logged:
            self._logged.add(code)
            logger.warning("path %d: the kernel refused to %s (%s)", self.path_id, what, os.strerror(code))
