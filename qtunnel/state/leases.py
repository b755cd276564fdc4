"""Which host number in the pools is which user's, kept across restarts of the server.

leases.json can always be made again, at the price of new addresses: a damaged file is reported and ignored, and
a write that fails costs a log line, never a session.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from qtunnel.errors import QTunnelError, StateError
from qtunnel.state.private_file import read_private, write_private

__all__ = ["LeaseStore"]

logger = logging.getLogger(__name__)

_ADAPTER = TypeAdapter(dict[str, int])


class LeaseStore(Mapping[str, int]):
    """Host numbers by user name, as qtunnel.tunnel.address_pool hands them out. Give all of them to save()."""

    def __init__(self, state: Path) -> None:
        self._path = state / "leases.json"
        self._numbers = self._load()

    def __getitem__(self, user: str) -> int:
        return self._numbers[user]

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def save(self, leases: Mapping[str, int]) -> None:
        """Keep exactly these from now on. Writes only when something changed; never raises."""
        numbers = dict(leases)
        if numbers == self._numbers:
            return
        self._numbers = numbers
        try:
            write_private(self._path, json.dumps(numbers, indent=1).encode() + b"\n", durable=False)
        except QTunnelError as error:
            logger.warning("leases: addresses will not survive a restart: %s", error)

    def _load(self) -> dict[str, int]:
        try:
            data = read_private(self._path)
            return {} if data is None else _ADAPTER.validate_json(data, strict=True)
        except (ValidationError, StateError):
            logger.warning("leases: %s cannot be used; users get new addresses", self._path)
            return {}
