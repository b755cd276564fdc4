"""Where things are kept: state, profiles, control sockets; and which names may become file names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from qtunnel.errors import ConfigError

__all__ = [
    "DEFAULT_SERVER_CONFIG",
    "ROOT_RUNTIME_DIRECTORY",
    "SERVER_INSTANCE",
    "check_name",
    "control_socket",
    "profile_directory",
    "running_instances",
    "runtime_directory",
    "state_directory",
]

DEFAULT_SERVER_CONFIG: Final = Path("/etc/qtunnel/server.toml")
ROOT_RUNTIME_DIRECTORY: Final = Path("/run/qtunnel")
SERVER_INSTANCE: Final = "server"
"""The name `status` knows the server by, unless it was given another; no profile may have it."""

CONTROL_SOCKET: Final = "control.sock"
MAX_NAME: Final = 40
_NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def check_name(name: str, *, field: str = "name") -> str:
    """Return the name of a profile or of a running tunnel, if it may also be a file name.

    Raises:
        ConfigError: it is empty, too long (a socket's path has about 100 bytes), or could lead elsewhere.
    """
    if not 1 <= len(name) <= MAX_NAME or not _NAME_CHARACTERS.issuperset(name) or name[0] in ".-":
        raise ConfigError(
            f"{name!r} cannot be a name: 1 to {MAX_NAME} letters, digits, dots, dashes and underscores, "
            "not beginning with a dot or a dash",
            field=field,
        )
    return name


def state_directory(given: str | None, environ: Mapping[str, str]) -> Path:
    """Return where a server keeps its identity and users: given, QTUNNEL_STATE_DIR or /var/lib/qtunnel."""
    return Path(given or environ.get("QTUNNEL_STATE_DIR") or "/var/lib/qtunnel")


def profile_directory(environ: Mapping[str, str], *, is_root: bool | None = None) -> Path:
    """Return where a client keeps its profiles: QTUNNEL_PROFILE_DIR, /etc/qtunnel (root) or ~/.config/qtunnel."""
    if given := environ.get("QTUNNEL_PROFILE_DIR"):
        return Path(given)
    if os.geteuid() == 0 if is_root is None else is_root:
        return Path("/etc/qtunnel/profiles")
    base = environ.get("XDG_CONFIG_HOME") or str(Path(environ.get("HOME") or "/") / ".config")
    return Path(base) / "qtunnel" / "profiles"


def runtime_directory(environ: Mapping[str, str], *, uid: int | None = None) -> Path:
    """Return where control sockets are: QTUNNEL_RUNTIME_DIR, /run/qtunnel (root) or the user's own place."""
    if given := environ.get("QTUNNEL_RUNTIME_DIR"):
        return Path(given)
    uid = os.geteuid() if uid is None else uid
    if uid == 0:
        return ROOT_RUNTIME_DIRECTORY
    if base := environ.get("XDG_RUNTIME_DIR"):
        return Path(base) / "qtunnel"
    return Path(f"/tmp/qtunnel-{uid}")


def control_socket(runtime: Path, name: str) -> Path:
    """Return the path of the control socket of the tunnel of that name.

    Raises:
        ConfigError: the name cannot be a file name.
    """
    return runtime / check_name(name) / CONTROL_SOCKET


def running_instances(runtime: Path) -> list[str]:
    """Return the names of all tunnels that have a control socket, sorted. Some may be leftovers of a crash."""
    try:
        return sorted(entry.name for entry in runtime.iterdir() if (entry / CONTROL_SOCKET).is_socket())
    except OSError:
        return []
