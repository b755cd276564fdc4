"""The kernel's forwarding, switched on while we run and put back as it was.

Both switches do more than their name says. net.ipv4.ip_forward overwrites the setting of every interface, and
accept_redirects of all; net.ipv6.conf.all.forwarding does the first too, and makes interfaces with accept_ra=1
forget the default route their router announced and not listen for another. Those get accept_ra=2 first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from qtunnel.linux.sysctl import PROC_SYS, read_sysctl, sysctl_names, write_sysctl

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Forwarding"]

_SWITCH: Final = {4: "net/ipv4/ip_forward", 6: "net/ipv6/conf/all/forwarding"}
_FOLDER: Final = {4: "net/ipv4/conf", 6: "net/ipv6/conf"}
_REDIRECTS: Final = "net/ipv4/conf/all/accept_redirects"
_NOT_INTERFACES: Final = frozenset(("all", "default", "lo"))


class Forwarding:
    """Forwarding of one IP version. restore() may be called at any time, also after a switch_on() that failed."""

    def __init__(self, version: int, *, root: Path = PROC_SYS) -> None:
        self._version = version
        self._root = root
        self._switched = False
        self._per_interface: dict[str, str] = {}
        self._redirects: str | None = None
        self._accept_ra: list[str] = []

    def switch_on(self) -> bool:
        """Switch forwarding on; return False if it was. Raises: SystemSetupError."""
        switch, folder = _SWITCH[self._version], _FOLDER[self._version]
        if (read_sysctl(switch, root=self._root) or "0") != "0":
            return False
        for name in sysctl_names(folder, root=self._root):
            key = f"{folder}/{name}/forwarding"
            value = read_sysctl(key, root=self._root)
            if value not in (None, "0") and key != switch:
                self._per_interface[key] = value or "0"
        if self._version == 4:
            self._redirects = read_sysctl(_REDIRECTS, root=self._root)
        else:
            self._keep_hearing_routers(folder)
        self._switched = True
        write_sysctl(switch, "1", root=self._root)
        return True

    def restore(self) -> None:
        """Put everything back that switch_on() changed and nobody has changed since. Raises: SystemSetupError."""
        switch = _SWITCH[self._version]
        if self._switched and read_sysctl(switch, root=self._root) == "1":
            write_sysctl(switch, "0", root=self._root)
            for key, value in self._per_interface.items():
                self._put_back(key, value)
            if self._redirects is not None:
                self._put_back(_REDIRECTS, self._redirects)
        self._switched = False
        for key in self._accept_ra:
            if read_sysctl(key, root=self._root) == "2":
                write_sysctl(key, "1", root=self._root)
        self._accept_ra.clear()

    def _keep_hearing_routers(self, folder: str) -> None:
        for name in sysctl_names(folder, root=self._root):
            key = f"{folder}/{name}/accept_ra"
            if name not in _NOT_INTERFACES and read_sysctl(key, root=self._root) == "1":
                self._accept_ra.append(key)
                write_sysctl(key, "2", root=self._root)

    def _put_back(self, key: str, value: str) -> None:
        """Write a setting of an interface, if that is still there and differs."""
        if read_sysctl(key, root=self._root) not in (None, value):
            write_sysctl(key, value, root=self._root)
