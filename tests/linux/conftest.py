"""Gives each test network namespaces of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.linux.namespaces import Namespaces

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def lab() -> Iterator[Namespaces]:
    with Namespaces() as namespaces:
        yield namespaces
