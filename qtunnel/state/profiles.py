"""A client's profiles: one TOML file a tunnel, mode 0600, made from a join link; people may add settings to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from qtunnel.errors import EntryError, StateError, SystemSetupError
from qtunnel.state.join_link import JoinLink
from qtunnel.state.paths import SERVER_INSTANCE, check_name
from qtunnel.state.private_file import FileLock, ensure_private_directory, read_private, write_private

__all__ = ["ProfileStore", "suggest_name"]

MAX_PROFILE: Final = 1024 * 1024
_SUFFIX: Final = ".toml"


def suggest_name(link: JoinLink) -> str:
    """Return a profile name for a link: the server's host, made fit to be a file name."""
    name = link.host.replace(":", "-").strip("-.")[:40].rstrip("-.")
    return name if name and name != SERVER_INSTANCE else "tunnel"


class ProfileStore:
    """The profiles in one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def directory(self) -> Path:
        """Return where the profiles are."""
        return self._directory

    def path(self, name: str) -> Path:
        """Return the file of a profile, which need not exist.

        Raises:
            ConfigError: the name cannot be one.
        """
        return self._directory / f"{check_name(name, field='profile')}{_SUFFIX}"

    def names(self) -> list[str]:
        """Return the names of all profiles, sorted.

        Raises:
            SystemSetupError: no permission.
        """
        try:
            entries = list(self._directory.iterdir())
        except FileNotFoundError:
            return []
        except PermissionError as error:
            raise SystemSetupError(
                f"no permission to read {self._directory}", remedy="Run it as root (sudo)"
            ) from error
        except OSError as error:
            raise StateError(f"{self._directory} cannot be read: {error.strerror}") from error
        return sorted(
            entry.stem for entry in entries if entry.suffix == _SUFFIX and not entry.name.startswith(".")
        )

    def only_name(self) -> str:
        """Return the name of the only profile.

        Raises:
            EntryError: there is none, or more than one.
        """
        names = self.names()
        if not names:
            raise EntryError(
                f"there is no profile in {self._directory}. Make one from a join link: qtunnel join < FILE"
            )
        if len(names) > 1:
            raise EntryError(f"there are several profiles, name one of: {', '.join(names)}")
        return names[0]

    def read(self, name: str) -> str:
        """Return a profile's TOML text, token included.

        Raises:
            EntryError: there is no such profile. StateError: others may read it, or it is no text.
        """
        path = self.path(name)
        data = read_private(path, max_bytes=MAX_PROFILE)
        if data is None:
            known = ", ".join(self.names()) or "none"
            raise EntryError(f"there is no profile {name!r} in {self._directory}. Known: {known}")
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise StateError(f"{path} is not UTF-8 text") from None

    def save(self, name: str, link: JoinLink, *, replace: bool = False) -> Path:
        """Keep a join link as a profile and return its file.

        Raises:
            EntryError: there is one of that name and replace is false, or the name is the server's.
        """
        path = self.path(name)
        if name == SERVER_INSTANCE:
            raise EntryError(f"{name!r} is what `qtunnel status` calls a server; take another name")
        ensure_private_directory(self._directory)
        with FileLock(self._directory / ".lock"):
            if path.exists() and not replace:
                raise EntryError(
                    f"there is a profile {name!r} already. Take another (--name), or replace it (--replace)"
                )
            write_private(path, _profile_text(link).encode())
        return path

    def remove(self, name: str) -> None:
        """Remove a profile.

        Raises:
            EntryError: there is no such profile. SystemSetupError: no permission.
        """
        path = self.path(name)
        try:
            path.unlink()
        except FileNotFoundError:
            known = ", ".join(self.names()) or "none"
            raise EntryError(f"there is no profile {name!r} in {self._directory}. Known: {known}") from None
        except PermissionError as error:
            raise SystemSetupError(f"no permission to remove {path}", remedy="Run it as root (sudo)") from error
        except OSError as error:
            raise StateError(f"{path} cannot be removed: {error.strerror}") from error


def _profile_text(link: JoinLink) -> str:
    values: dict[str, str | int | None] = {
        "server": link.host,
        "port": link.port,
        "server_name": link.server_name,
        "fingerprint": link.fingerprint,
        "token": link.token,
    }
    # A JSON string of ASCII characters is a TOML basic string, and a JSON integer a TOML integer.
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items() if value is not None]
    return "\n".join(
        [
            f"# User {link.user} at {link.host}. The token below is a password: keep this file to yourself.",
            "# More settings may be added here (docs/configuration.md), such as: routes = ['default']",
            *lines,
            "",
        ]
    )
