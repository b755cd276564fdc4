"""qtunnel.pmtud.discovery. Sizes in bytes of UDP payload."""

from __future__ import annotations

from qtunnel.pmtud.config import PathMtuConfig
from qtunnel.pmtud.discovery import PathMtuDiscovery
from qtunnel.pmtud.states import State


def test_it_begins_disabled_at_the_base_size() -> None:
    discovery = PathMtuDiscovery(PathMtuConfig())
    assert (discovery.state, discovery.size, discovery.get_timer()) == (State.DISABLED, 1200, None)
