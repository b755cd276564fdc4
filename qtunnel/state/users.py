"""A server's users: users.json, with the SHA-256 of each token and never a token.

Every change is made under a lock and replaces the file in one step, so the command line and a running server can
use it at the same time.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from qtunnel.config import IPNetwork, User, token_digest
from qtunnel.errors import ConfigError, EntryError, StateError
from qtunnel.state.private_file import FileLock, read_private, write_private

__all__ = ["UserRecord", "UserStore", "new_token"]

TOKEN_BYTES: Final = 32
MAX_USERS: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRecord:
    """One user as kept on disk. token_issued: ISO 8601, when the present token was made."""

    name: str
    token_sha256: str = field(repr=False)
    prefixes: tuple[IPNetwork, ...] = ()
    token_issued: str = ""

    def user(self) -> User:
        """Return the user as the server takes it.

        Raises:
            ConfigError: the name or the hash cannot be used.
        """
        return User(name=self.name, token_sha256=self.token_sha256, prefixes=self.prefixes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _UsersFile:
    version: int = 1
    users: tuple[UserRecord, ...] = ()


_ADAPTER: Final = TypeAdapter(_UsersFile)


def new_token() -> str:
    """Return a new token: 32 random bytes in base64url, 43 characters."""
    return secrets.token_urlsafe(TOKEN_BYTES)


class UserStore:
    """The users of one server, in the state directory. now: the current time, for the date beside a token."""

    def __init__(self, state: Path, *, now: Callable[[], datetime]) -> None:
        self._path = state / "users.json"
        self._lock_path = state / "users.lock"
        self._now = now

    def exists(self) -> bool:
        """Tell whether a user was ever added."""
        return self._path.exists()

    def records(self) -> tuple[UserRecord, ...]:
        """Return all users as they are on disk, in the order they were added.

        Raises:
            StateError: the file is damaged or can be read by others.
        """
        data = read_private(self._path)
        if data is None:
            return ()
        try:
            file = _ADAPTER.validate_json(data, strict=True)
            names = [record.user().name for record in file.users]
        except (ValidationError, ConfigError):
            # The cause would quote the file, hashes and all.
            raise StateError(
                f"{self._path} is damaged. Restore it from a backup, or remove it and add the users again"
            ) from None
        if file.version != 1:
            raise StateError(f"{self._path} has version {file.version}; this qtunnel knows version 1")
        if len(set(names)) != len(names):
            raise StateError(f"{self._path} names a user twice")
        return file.users

    def users(self) -> tuple[User, ...]:
        """Return all users as the server takes them."""
        return tuple(record.user() for record in self.records())

    def add(self, name: str, prefixes: Sequence[IPNetwork] = ()) -> str:
        """Add a user and return the token, which is kept nowhere.

        Raises:
            EntryError: there is one of that name. ConfigError: the name cannot be used.
        """
        token = new_token()
        record = self._record(name, token, tuple(prefixes))
        record.user()
        with FileLock(self._lock_path):
            records = self.records()
            if any(known.name == name for known in records):
                raise EntryError(f"there is a user {name!r} already. For a new link: qtunnel user link {name}")
            if len(records) >= MAX_USERS:
                raise EntryError(f"there are {MAX_USERS} users, which is the most")
            self._write((*records, record))
        return token

    def remove(self, name: str) -> None:
        """Remove a user; the token is worthless from now on.

        Raises:
            EntryError: there is no such user.
        """
        with FileLock(self._lock_path):
            records = self.records()
            self._find(name, records)
            self._write(tuple(record for record in records if record.name != name))

    def renew_token(self, name: str) -> str:
        """Give a user a new token and return it; the old one is worthless from now on.

        Raises:
            EntryError: there is no such user.
        """
        token = new_token()
        with FileLock(self._lock_path):
            records = self.records()
            old = self._find(name, records)
            new = self._record(name, token, old.prefixes)
            self._write(tuple(new if record is old else record for record in records))
        return token

    def _record(self, name: str, token: str, prefixes: tuple[IPNetwork, ...]) -> UserRecord:
        issued = self._now().isoformat(timespec="seconds")
        return UserRecord(name=name, token_sha256=token_digest(token), prefixes=prefixes, token_issued=issued)

    def _find(self, name: str, records: Sequence[UserRecord]) -> UserRecord:
        for record in records:
            if record.name == name:
                return record
        known = ", ".join(record.name for record in records[:10]) or "none"
        raise EntryError(f"there is no user {name!r}. Known: {known}{', …' if len(records) > 10 else ''}")

    def _write(self, records: tuple[UserRecord, ...]) -> None:
        write_private(self._path, _ADAPTER.dump_json(_UsersFile(users=records), indent=1) + b"\n")
