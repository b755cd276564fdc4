from qtunnel.quic.multipath.frames import Frame, MaxPathId, PathAbandon, PathsBlocked, PathStatus, encode_frame
from qtunnel.quic.multipath.outbox import FrameOutbox


def test_frames_leave_in_order_and_as_many_as_there_is_room_for() -> None:
    outbox = FrameOutbox(lambda _: True)
    frames: list[Frame] = [PathAbandon(path_id, 0) for path_id in range(1, 5)]
    for frame in frames:
        outbox.put(frame)
    assert outbox.take(3) == []
    assert outbox.take(2 * len(encode_frame(frames[0])) + 1) == frames[:2]
    assert outbox.take(1000) == frames[2:]
    assert len(outbox) == 0


def test_mpq_27_mpq_38_only_the_newest_limit_and_the_newest_status_of_a_path_are_sent() -> None:
    outbox = FrameOutbox(lambda _: True)
    for frame in (
        MaxPathId(3),
        PathStatus(1, 1, True),
        PathStatus(2, 1, True),
        PathsBlocked(5),
        MaxPathId(4),
        PathStatus(1, 2, False),
    ):
        outbox.put(frame)
    assert outbox.take(1000) == [PathStatus(2, 1, True), PathsBlocked(5), MaxPathId(4), PathStatus(1, 2, False)]


def test_mpq_27_mpq_38_a_lost_frame_is_sent_again_while_it_says_something() -> None:
    outbox = FrameOutbox(lambda frame: frame != MaxPathId(3))
    outbox.on_lost(MaxPathId(3))
    outbox.on_lost(PathAbandon(1, 0))
    outbox.on_lost(PathAbandon(1, 0))
    assert outbox.take(1000) == [PathAbandon(1, 0)]


def test_a_lost_frame_does_not_push_out_a_newer_one() -> None:
    outbox = FrameOutbox(lambda _: True)
    outbox.put(PathStatus(1, 2, False))
    outbox.on_lost(PathStatus(1, 1, True))
    assert outbox.take(1000) == [PathStatus(1, 2, False)]


def test_what_is_of_no_use_any_more_is_taken_out() -> None:
    outbox = FrameOutbox(lambda _: True)
    outbox.put(PathStatus(1, 1, True))
    outbox.put(PathStatus(2, 1, True))
    outbox.forget(lambda frame: isinstance(frame, PathStatus) and frame.path_id == 1)
    assert outbox.take(1000) == [PathStatus(2, 1, True)]
