from qtunnel.quic.multipath.probing import challenge_frames, response_frames
from tests.unit.quic.multipath.test_path_record import ADDRESS, record


def test_mpq_14_mpq_17_a_challenge_waits_for_something_to_come_and_is_padded_when_it_may_be() -> None:
    under_test = record()
    assert under_test.migration is not None
    assert challenge_frames(under_test, 10.0) == []
    under_test.migration.current.allowance.on_received(400)
    (challenge,) = challenge_frames(under_test, 10.0)
    assert (challenge.remote, challenge.frames, challenge.size) == (ADDRESS, b"\x1a" + bytes(8), 1200)
    assert under_test.allowed == 0
    assert challenge_frames(under_test, 11.0) == []


def test_mpq_15_mpq_17_a_response_is_padded_as_far_as_amplification_allows() -> None:
    under_test = record()
    assert under_test.migration is not None
    under_test.migration.current.allowance.on_received(500)
    under_test.responses.append((b"11111111", ADDRESS, None, 500))
    under_test.responses.append((b"22222222", ADDRESS, None, 500))
    under_test.responses.append((b"33333333", ("192.0.2.9", 9), None, 1200))
    found = [(each.frames, each.remote, each.size) for each in response_frames(under_test)]
    assert found == [
        (b"\x1b11111111", ADDRESS, 1200),
        (b"\x1b22222222", ADDRESS, 0),
        (b"\x1b33333333", ("192.0.2.9", 9), 1200),
    ]
    assert response_frames(under_test) == []
