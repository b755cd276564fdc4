"""qtunnel.pmtud.round_trips. Times in seconds."""

from __future__ import annotations

from qtunnel.pmtud.round_trips import INITIAL_RTT, RoundTrips


def test_before_the_first_measurement_a_round_trip_is_as_loss_recovery_has_it() -> None:
    trips = RoundTrips()
    assert (trips.latest, trips.shortest, trips.pto, trips.queued) == (
        INITIAL_RTT,
        INITIAL_RTT,
        3 * INITIAL_RTT,
        0,
    )


def test_a_round_trip_that_was_not_measured_changes_nothing() -> None:
    trips = RoundTrips()
    trips.update(0.04, 0.04, 0.04, 0.1)
    trips.update(0.0, 0.0, 0.0, 0.0)
    assert trips.shortest == 0.04


def test_a_round_trip_well_above_the_shortest_has_waited_in_a_queue() -> None:
    trips = RoundTrips()
    trips.update(0.206, 0.15, 0.04, 0.3)
    assert round(trips.queued, 6) == 0.166
    trips.update(0.06, 0.05, 0.04, 0.1)
    assert trips.queued == 0
