"""A TUN device: bursts of IP packets, many of them in one read or write where the kernel can.

With offloads a read or write is a frame: a virtio_net_hdr and a packet, or a super-packet (see vnet_hdr). What is
read is cut (segmentation), what is written is put together (coalescing), and whoever calls sees packets. Each
offload is done without when the kernel refuses it: at first, or in the middle of a transfer.

The device disappears with its file descriptor, and with it every address and route on it, also when the process is
killed. Its MTU and addresses are set by netlink (qtunnel.linux.host).
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import socket
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from qtunnel.burst import MAX_BURST, MAX_READ
from qtunnel.errors import SystemSetupError
from qtunnel.flow_runs import LEAST_FLOW
from qtunnel.linux.coalescing import SuperPacket, coalesce, coalesce_flow
from qtunnel.linux.netlink import Netlink
from qtunnel.linux.segmentation import Segmenter, complete_checksums
from qtunnel.linux.vnet_hdr import MAX_SEGMENTS, NEEDS_CSUM, NO_OFFLOAD, VNET_HEADER, VNET_HEADER_SIZE
from qtunnel.packet_run import PacketRun, Packets

__all__ = ["Tun", "TunCounters"]

logger = logging.getLogger(__name__)

TUN_DEVICE: Final = "/dev/net/tun"
_TUNSETIFF: Final = 0x400454CA
_TUNSETOFFLOAD: Final = 0x400454D0
_SIOCSIFMTU: Final = 0x8922
_IFF_TUN: Final = 0x0001
_IFF_NO_PI: Final = 0x1000
_IFF_VNET_HDR: Final = 0x4000
_TUN_F_CSUM: Final = 0x01
_TUN_F_TSO: Final = 0x02 | 0x04 | 0x08
"""TCP on IPv4, on IPv6, and with ECN."""
_TUN_F_USO: Final = 0x20 | 0x40
"""UDP on IPv4 and IPv6, from Linux 6.2."""
_MAX_PACKET: Final = 65535
_DETACHED: Final = frozenset((errno.EBADFD, errno.EBADF, errno.ENODEV))
"""What a read says once the interface was deleted behind our back. The descriptor then stays readable for ever."""
_MAX_SUPER_PACKETS: Final = 4
"""Read in one burst. More would keep what the peer has to say waiting."""
_MAX_REFUSALS: Final = 4
"""After so many in a row an offload is taken for one that does not work."""
_MEANS_NO: Final = frozenset((errno.EINVAL, errno.EIO, errno.EMSGSIZE, errno.EOPNOTSUPP))


@dataclass(slots=True)
class TunCounters:
    """What the offloads did.

    super_packets_read were cut into segments_read. coalesced_writes took packets_coalesced packets.
    offload_fallbacks: coalesced writes that were refused and repeated packet by packet. bad_frames: dropped, as
    their virtio_net_hdr made no sense.
    """

    super_packets_read: int = 0
    segments_read: int = 0
    coalesced_writes: int = 0
    packets_coalesced: int = 0
    offload_fallbacks: int = 0
    bad_frames: int = 0


class Tun:
    """A TUN device (qtunnel.burst.TunEdge). Not thread-safe.

    name: the interface as the kernel named it. detached: the interface was deleted; there is nothing to read any
    more and the owner should close it. read_errors, write_errors: how often the kernel refused, by errno.
    refused: offloads that are done without, by name: as the kernel said no, at first or some times in a row.
    has_more: packets of the last read are kept, which the descriptor knows nothing of.
    packets_read, packets_written: of all kinds, super-packets counted as what they hold.
    coalesces_tcp, coalesces_udp: whether neighbours are written together; False for good once that did not work.
    """

    __slots__ = (
        "_buffer",
        "_buffers",
        "_fd",
        "_has_vnet_header",
        "_incomplete",
        "_kept",
        "_refused_reads",
        "_refused_writes",
        "_segmenter",
        "_singles",
        "coalesces_tcp",
        "coalesces_udp",
        "counters",
        "detached",
        "has_more",
        "name",
        "packets_read",
        "packets_written",
        "read_errors",
        "refused",
        "write_errors",
    )

    def __init__(self, fd: int, name: str, *, has_vnet_header: bool = False) -> None:
        """Take over an open, attached, non-blocking descriptor. has_vnet_header: IFF_VNET_HDR is set on it."""
        self._fd = fd
        self.name = name
        self.detached = False
        self.packets_read = self.packets_written = 0
        self.read_errors: Counter[int] = Counter()
        self.write_errors: Counter[int] = Counter()
        self.counters = TunCounters()
        self.coalesces_tcp = self.coalesces_udp = has_vnet_header
        self._has_vnet_header = has_vnet_header
        self._refused_reads = 0
        self._refused_writes = {False: 0, True: 0}  # by whether they were UDP
        self._segmenter = Segmenter()
        self._singles: list[bytes] = []  # single packets of the burst that is being read
        self._incomplete: list[tuple[int, bytes]] = []  # index of one of them, and its virtio_net_hdr
        self.refused: Counter[str] = Counter()
        self._kept: list[Packets] = []
        self.has_more = False
        self._buffer = memoryview(bytearray(_MAX_PACKET + (VNET_HEADER_SIZE if has_vnet_header else 0)))
        self._buffers = [self._buffer]

    @classmethod
    def open(
        cls, name: str = "qtun%d", mtu: int | None = None, *, offload: bool = True, device: str = TUN_DEVICE
    ) -> Tun:
        """Make a TUN interface; %d in name becomes the first free number. It is down and has no address.

        mtu: IP packet size in bytes; None leaves the kernel's 1500. offload: read and write many packets at once,
        as far as this kernel can.

        Raises:
            SystemSetupError: no TUN driver, no permission, or the name is taken; says what to type.
        """
        try:
            fd = os.open(device, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise _open_error(error, device) from error
        try:
            granted, has_vnet_header = _attach(fd, name, offload=offload)
            tun = cls(fd, granted, has_vnet_header=has_vnet_header)
            if offload and not has_vnet_header:
                tun.refused["vnet_hdr"] += 1
            if has_vnet_header:
                tun._take_super_packets()
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

    def read_burst(self) -> list[Packets]:
        """Return about MAX_BURST packets, in groups in order; empty when nothing waits or the interface is gone.

        At most MAX_READ: what a super-packet of more than MAX_SEGMENTS has beyond that is kept for the next call,
        which is due when there is room for it (has_more). Errors are counted, never raised.
        """
        groups, self._kept = self._kept, []
        if not groups:
            groups = self._read_groups()
            self.packets_read += sum(map(len, groups))
        room = MAX_READ
        for at, group in enumerate(groups):
            if len(group) > room:
                self._kept = [group[room:], *groups[at + 1 :]]
                groups = [*groups[:at], group[:room]] if room else groups[:at]
                break
            room -= len(group)
        self.has_more = bool(self._kept)
        return groups

    def _read_groups(self) -> list[Packets]:
        groups: list[Packets] = []
        count = 0
        before = self.counters.super_packets_read
        for _ in range(MAX_BURST):
            size = self._read()
            if size <= 0:
                if size < 0:
                    continue
                break
            if self._has_vnet_header and self._buffer[1]:
                for group in self._split(size):
                    count += len(group)
                    if isinstance(group, PacketRun):
                        self._end_singles(groups)
                        groups.append(group)
                    else:
                        self._singles += group
                if self.counters.super_packets_read - before >= _MAX_SUPER_PACKETS:
                    break
            else:
                self._add_single(size)
                count += 1
            if count >= MAX_BURST:
                break
        self._end_singles(groups)
        return groups

    def _read(self) -> int:
        """Read one frame into the buffer; return its size, 0 to stop, -1 to go on without."""
        try:
            return os.readv(self._fd, self._buffers)
        except BlockingIOError:
            return 0
        except OSError as error:
            self._on_error(error, self.read_errors)
            # The kernel has dropped one packet that it could not describe. It may well have others.
            if error.errno not in _MEANS_NO or not self._has_vnet_header:
                return 0
            self._on_bad_frame()
            return -1

    def _add_single(self, size: int) -> None:
        buffer = self._buffer
        if not self._has_vnet_header:
            self._singles.append(bytes(buffer[:size]))
            return
        if buffer[0] & NEEDS_CSUM:
            self._incomplete.append((len(self._singles), bytes(buffer[:VNET_HEADER_SIZE])))
        self._singles.append(bytes(buffer[VNET_HEADER_SIZE:size]))

    def _end_singles(self, groups: list[Packets]) -> None:
        """Add the single packets read so far, complete, as a group."""
        singles, self._singles = self._singles, []
        if self._incomplete:
            self._complete(singles, self._incomplete)
            self._incomplete = []
        if singles:
            groups.append(singles)

    def _split(self, size: int) -> list[Packets]:
        """Return the segments of the super-packet in the buffer; none, counted, when it makes no sense."""
        groups = self._segmenter.split(self._buffer[:size])
        if groups:
            self.counters.super_packets_read += 1
            self.counters.segments_read += sum(map(len, groups))
            self._refused_reads = 0
        else:
            self.counters.bad_frames += 1
            self._on_bad_frame()
        return groups

    def _complete(self, packets: list[bytes], incomplete: list[tuple[int, bytes]]) -> None:
        """Complete the checksums of the packets at these indices, in place; drop and count what makes no sense.

        Those of one size and virtio_net_hdr are done together, wherever they are.
        """
        groups: dict[tuple[bytes, int], list[int]] = {}
        for index, header in incomplete:
            groups.setdefault((header, len(packets[index])), []).append(index)
        dropped: list[int] = []
        for (header, _), indices in groups.items():
            _, _, _, _, start, offset = VNET_HEADER.unpack(header)
            complete = complete_checksums([packets[index] for index in indices], start, offset)
            if not complete:
                dropped += indices
            for index, packet in zip(indices, complete, strict=False):
                packets[index] = packet
        for index in sorted(dropped, reverse=True):
            del packets[index]
            self.counters.bad_frames += 1
            self._on_bad_frame()

    def _on_bad_frame(self) -> None:
        """After some in a row, tell the kernel to cut super-packets and complete checksums itself."""
        self._refused_reads += 1
        if self._refused_reads == _MAX_REFUSALS:
            logger.warning("%s: reading many packets at once does not work; one by one from now on", self.name)
            self.refused["reads"] += 1
            try:
                fcntl.ioctl(self._fd, _TUNSETOFFLOAD, 0)
            except OSError as error:
                self._on_error(error, self.read_errors)

    def write_burst(self, packets: Packets) -> int:
        """Write the packets in order; return how many the kernel took. Refused ones are counted and lost.

        The kernel refuses what is neither IPv4 nor IPv6 (EINVAL), and all while the interface is down (EIO).
        """
        if len(packets) < LEAST_FLOW or not (self.coalesces_tcp or self.coalesces_udp):
            taken = self._write_singly(packets)
        else:
            taken = self._write_coalesced(packets)
        self.packets_written += taken
        return taken

    def _write_coalesced(self, packets: Packets) -> int:
        if isinstance(packets, PacketRun) and packets.is_flow:
            found = coalesce_flow(packets, tcp=self.coalesces_tcp, udp=self.coalesces_udp)
        else:
            found = coalesce(packets, tcp=self.coalesces_tcp, udp=self.coalesces_udp)
        taken = done = 0
        for together in found:
            if done < together.first:
                taken += self._write_singly(packets[done : together.first])
            done = together.first + together.count
            taken += self._write_together(together, packets)
        if done < len(packets):
            taken += self._write_singly(packets[done:])
        return taken

    def _write_singly(self, packets: Sequence[bytes]) -> int:
        taken = 0
        fd = self._fd
        header = NO_OFFLOAD if self._has_vnet_header else b""
        for packet in packets:
            try:
                os.write(fd, header + packet)
            except OSError as error:
                self._on_error(error, self.write_errors)
            else:
                taken += 1
        return taken

    def _write_together(self, together: SuperPacket, packets: Sequence[bytes]) -> int:
        """Write a super-packet, or its packets one by one if the kernel refuses it."""
        is_udp = not together.is_tcp
        members = packets[together.first : together.first + together.count]
        if not (self.coalesces_udp if is_udp else self.coalesces_tcp):  # given up within this burst
            return self._write_singly(members)
        try:
            os.writev(self._fd, together.pieces)
        except OSError as error:
            taken = self._write_singly(members)
            self.counters.offload_fallbacks += 1
            # If none was taken either, the interface is down or gone.
            if taken and error.errno in _MEANS_NO:
                self._on_refused_write(error, is_udp=is_udp)
            return taken
        self._refused_writes[is_udp] = 0
        self.counters.coalesced_writes += 1
        self.counters.packets_coalesced += together.count
        return together.count

    def _on_refused_write(self, error: OSError, *, is_udp: bool) -> None:
        self._refused_writes[is_udp] += 1
        if self._refused_writes[is_udp] < _MAX_REFUSALS:
            return
        if is_udp:
            self.coalesces_udp = False
        else:
            self.coalesces_tcp = False
        self.refused["writes of UDP" if is_udp else "writes of TCP"] += 1
        logger.warning(
            "%s: the kernel refuses many %s packets at once (%s); writing one by one from now on",
            self.name,
            "UDP" if is_udp else "TCP",
            error.strerror,
        )

    def _take_super_packets(self) -> None:
        """Tell the kernel what it may leave to us, as much as it knows of."""
        refusal: OSError | None = None
        for offloads in (_TUN_F_CSUM | _TUN_F_TSO | _TUN_F_USO, _TUN_F_CSUM | _TUN_F_TSO, _TUN_F_CSUM):
            try:
                fcntl.ioctl(self._fd, _TUNSETOFFLOAD, offloads)
            except OSError as error:
                refusal = error
            else:
                break
        else:
            offloads = 0
        if refusal is not None:
            self.refused["offloads"] += 1
            logger.info("%s: offloads %#x and no more (%s)", self.name, offloads, refusal.strerror)
        # No lower limit, and none in bytes, though 46 segments of an inner MTU of 1382 are all that one segmented
        # send takes: a LAN's super-packets have up to 49, and the kernel cuts what is above a limit into single
        # packets. That cost 5.5 us a packet instead of 3.8, where local senders gained 0.3 us.
        try:
            with Netlink() as netlink:
                netlink.set_link(netlink.link(self.name).index, gso_max_segments=MAX_SEGMENTS)
        except OSError as error:
            self.refused["gso_max_segs"] += 1
            logger.info("%s: super-packets may have any number of segments (%s)", self.name, error.strerror)

    def _on_error(self, error: OSError, counter: Counter[int]) -> None:
        code = error.errno or 0
        counter[code] += 1
        if code in _DETACHED:
            self.detached = True


def _attach(fd: int, name: str, *, offload: bool) -> tuple[str, bool]:
    """Make the interface; return its name and whether each packet has a virtio_net_hdr."""
    refusal: OSError | None = None
    for flags in (_IFF_VNET_HDR, 0) if offload else (0,):
        request = struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI | flags)
        try:
            granted = fcntl.ioctl(fd, _TUNSETIFF, request)
        except OSError as error:
            if flags and error.errno in _MEANS_NO:
                refusal = error  # of a kernel without it, or for a name that is not valid: then again
                continue
            raise _attach_error(error, name) from error
        if refusal is not None:
            logger.info("%s: no virtio_net_hdr (%s): one packet at a time", name, refusal.strerror)
        return granted[:16].rstrip(b"\0").decode(), bool(flags)
    raise AssertionError("the last attempt returns or raises")


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
