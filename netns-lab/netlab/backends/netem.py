"""netem, the kernel's own link emulator.

With a queue limited in bytes netem only delays, and a tbf below it does rate and queue: netem's own limit counts
packets and includes those in the delay line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from netlab.backends.base import Backend
from netlab.host import Host
from netlab.shape import FULL_FRAME, UNLIMITED_PACKETS, Shape

TBF_BURST: Final = 2 * FULL_FRAME


class NetemBackend(Backend):
    """Queueing disciplines set with tc."""

    name: ClassVar[str] = "netem"

    @staticmethod
    def is_available(host: Host) -> bool:
        """Try to put a netem on the loopback device of a host."""
        if not host.run(["tc", "qdisc", "add", "dev", "lo", "root", "netem"], check=False).ok:
            return False
        host.run(["tc", "qdisc", "del", "dev", "lo", "root"])
        return True

    def attach(self, host: Host, device: str, shape: Shape) -> None:
        """Set the device's root discipline."""
        self._set("replace", host, device, shape)

    def change(self, host: Host, device: str, shape: Shape) -> None:
        """Change the disciplines in place."""
        self._set("change", host, device, shape)

    def unintended_drops(self, host: Host) -> int:
        """Return none: the kernel keeps up with itself."""
        return 0

    def cpu_seconds(self) -> float | None:
        """Tell that it is the kernel that works."""
        return None

    def close(self) -> None:
        """Leave the disciplines to the namespace's end."""

    def _set(self, verb: str, host: Host, device: str, shape: Shape) -> None:
        base = ["tc", "qdisc", verb, "dev", device]
        host.run([*base, "root", "handle", "1:", *netem_arguments(shape)])
        if shape.limit_bytes is not None:
            host.run([*base, "parent", "1:1", "handle", "10:", *tbf_arguments(shape)])


def netem_arguments(shape: Shape) -> Sequence[str]:
    """Return what tc is told about netem."""
    arguments = ["netem", "delay", f"{shape.delay_s * 1e6:.0f}us"]
    if shape.rate_bps is not None and shape.limit_bytes is None:
        arguments += ["rate", f"{shape.rate_bps:.0f}bit"]
    arguments += ["limit", str(shape.limit_packets if shape.limit_bytes is None else UNLIMITED_PACKETS)]
    if shape.loss:
        arguments += ["loss", f"{shape.loss * 100:.6f}%"]
    if shape.reorder:
        arguments += ["reorder", f"{shape.reorder * 100:.6f}%"]
    return arguments


def tbf_arguments(shape: Shape) -> Sequence[str]:
    """Return what tc is told about the tbf below netem, for a queue in bytes."""
    return ["tbf", "rate", f"{shape.rate_bps:.0f}bit", "burst", str(TBF_BURST), "limit", str(shape.limit_bytes)]
