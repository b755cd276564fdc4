"""Reads what the kernel says in /proc; a test gives another root."""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["CAP_NET_ADMIN", "CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "ProcFiles"]

CAP_NET_BIND_SERVICE: Final = 10
CAP_NET_ADMIN: Final = 12
CAP_NET_RAW: Final = 13


class ProcFiles:
    """The /proc below root. What is missing or unreadable is None, or empty."""

    def __init__(self, root: Path = Path("/proc")) -> None:
        self._root = root

    def text(self, path: str) -> str | None:
        """Return a file's content."""
        try:
            return (self._root / path).read_text(encoding="ascii", errors="replace")
        except OSError:
            return None

    def sysctl(self, name: str) -> int | None:
        """Return a sysctl that is one number; the name has dots, and slashes stand for dots in interface names."""
        text = self.text("sys/" + "/".join(part.replace("/", ".") for part in name.split(".")))
        try:
            return None if text is None else int(text)
        except ValueError:
            return None

    def interfaces(self, family: str) -> list[str]:
        """Return the interfaces that have sysctls. family: ipv4 or ipv6."""
        try:
            names = [entry.name for entry in (self._root / "sys/net" / family / "conf").iterdir()]
        except OSError:
            return []
        return sorted(set(names) - {"all", "default"})

    def capabilities(self) -> int:
        """Return the effective capabilities of this process as a bit mask."""
        for line in (self.text("self/status") or "").splitlines():
            name, _, value = line.partition(":")
            if name == "CapEff":
                return int(value.strip() or "0", 16)
        return 0

    def has_capability(self, number: int) -> bool:
        """Tell whether this process has one capability."""
        return bool(self.capabilities() >> number & 1)

    def udp_counters(self) -> dict[str, int]:
        """Return the host's UDP counters, both families added."""
        counters: dict[str, int] = {}
        lines = [line.split() for line in (self.text("net/snmp") or "").splitlines() if line.startswith("Udp: ")]
        if len(lines) == 2:
            for name, value in zip(lines[0][1:], lines[1][1:], strict=False):
                counters[name] = int(value)
        for line in (self.text("net/snmp6") or "").splitlines():
            name, _, value = line.partition(" ")
            if name.startswith("Udp6"):
                key = name.removeprefix("Udp6")
                counters[key] = counters.get(key, 0) + int(value)
        return counters
