"""What every simulated tunnel needs once: a server's identity, which costs a key."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from qtunnel.state.identity import ServerIdentity, load_or_create_identity
from tests.sim.world import SERVER_NAME


@pytest.fixture(scope="session")
def identity(tmp_path_factory: pytest.TempPathFactory) -> ServerIdentity:
    state = tmp_path_factory.mktemp("state")
    return load_or_create_identity(state, server_name=SERVER_NAME, now=datetime.now(UTC))
