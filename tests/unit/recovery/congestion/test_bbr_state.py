"""qtunnel.recovery.congestion.bbr_state."""

from __future__ import annotations

from qtunnel.recovery.congestion.bbr_state import GAINS, PROBE_BW, PROBING_BW, State


def test_every_state_has_its_gains() -> None:
    assert set(GAINS) == set(State)
    assert all(pacing > 0 and window > 0 for pacing, window in GAINS.values())


def test_only_states_that_accelerate_probe_for_bandwidth() -> None:
    assert {State.STARTUP, State.PROBE_BW_REFILL, State.PROBE_BW_UP} == PROBING_BW
    assert {each for each in State if each.value.startswith("ProbeBW")} == PROBE_BW
