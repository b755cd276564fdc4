"""The kernel's forwarding, switched on while we run and put back as it was.

Both switches do more than their name says. net.ipv4.ip_forward overwrites the setting of every interface, and
accept_redirects of all; net.ipv6.conf.all.forwarding does the first too, and makes interfaces with accept_ra=1
forget the default route their router announced and not listen for another. Those get accept_ra=2 first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from qtunnel.linux.forwarding_journal import ForwardingJournal, SettingsBefore
from qtunnel.linux.sysctl import PROC_SYS, read_sysctl, sysctl_names, write_sysctl

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Forwarding"]

_SWITCH: Final = {4: "net/ipv4/ip_forward", 6: "net/ipv6/conf/all/forwarding"}
_FOLDER: Final = {4: "net/ipv4/conf", 6: "net/ipv6/conf"}
_REDIRECTS: Final = "net/ipv4/conf/all/accept_redirects"
_NOT_INTERFACES: Final = frozenset(("all", "default", "lo"))


class Forwarding:
    """Forwarding of one IP version. restore() may be called at any time, also after a switch_on() that failed.

    journal: a directory all tunnels of this host share (qtunnel.linux.forwarding_journal). With it the last of
    them puts forwarding back, or the next one if that was killed; without it the one that switched it on.
    """

    def __init__(self, version: int, *, root: Path = PROC_SYS, journal: Path | None = None) -> None:
        self._version = version
        self._root = root
        self._journal = ForwardingJournal(journal, version)
        self._before: SettingsBefore | None = None

    def switch_on(self) -> bool:
        """Switch forwarding on; return False if it was. Raises: SystemSetupError."""
        with self._journal.locked(make=True):
            self._journal.join()
            self._before = self._journal.read()
            if (read_sysctl(_SWITCH[self._version], root=self._root) or "0") != "0":
                return False
            before = self._look()
            if self._before is not None:  # somebody has switched it off since
                before.accept_ra += [key for key in self._before.accept_ra if key not in before.accept_ra]
            self._before = before
            self._journal.write(before)
            for key in before.accept_ra:
                write_sysctl(key, "2", root=self._root)
            write_sysctl(_SWITCH[self._version], "1", root=self._root)
        return True

    def restore(self) -> bool:
        """Put everything back that was changed and nobody has changed since, unless another tunnel needs it.

        Return whether there was anything. Raises: SystemSetupError; the journal keeps what could not be put back.
        """
        own, self._before = self._before, None
        with self._journal.locked():
            try:
                before = (self._journal.read() or own) if self._journal.take() else None
                if before is not None:
                    self._put_all_back(before)
                self._journal.remove()
            finally:
                self._journal.close()
        return before is not None

    def _look(self) -> SettingsBefore:
        """Return what switching it on will change."""
        switch, folder = _SWITCH[self._version], _FOLDER[self._version]
        before = SettingsBefore()
        for name in sysctl_names(folder, root=self._root):
            key = f"{folder}/{name}/forwarding"
            value = read_sysctl(key, root=self._root)
            if value not in (None, "0") and key != switch:
                before.per_interface[key] = value or "0"
            key = f"{folder}/{name}/accept_ra"
            if name not in _NOT_INTERFACES and read_sysctl(key, root=self._root) == "1":
                before.accept_ra.append(key)
        if self._version == 4:
            before.redirects = read_sysctl(_REDIRECTS, root=self._root)
        return before

    def _put_all_back(self, before: SettingsBefore) -> None:
        switch = _SWITCH[self._version]
        if read_sysctl(switch, root=self._root) == "1":
            write_sysctl(switch, "0", root=self._root)
            for key, value in before.per_interface.items():
                self._put_back(key, value)
            if before.redirects is not None:
                self._put_back(_REDIRECTS, before.redirects)
        for key in before.accept_ra:
            if read_sysctl(key, root=self._root) == "2":
                write_sysctl(key, "1", root=self._root)

    def _put_back(self, key: str, value: str) -> None:
        """Write a setting of an interface, if that is still there and differs."""
        if read_sysctl(key, root=self._root) not in (None, value):
            write_sysctl(key, value, root=self._root)
