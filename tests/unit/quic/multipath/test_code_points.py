from qtunnel.quic.multipath.code_points import INITIAL_MAX_PATH_ID, FrameType, PathError, is_multipath_frame


def test_every_code_point_has_the_number_other_implementations_use() -> None:
    assert INITIAL_MAX_PATH_ID == 0x3E
    assert [kind.value for kind in FrameType] == [0x3E, 0x3F, *range(0x3E75, 0x3E7D)]
    assert [error.value for error in PathError] == [0, 0x3E, 0x3E75, 0x3E76, 0x3E77]


def test_frames_of_rfc_9000_are_none_of_the_extension() -> None:
    assert not any(is_multipath_frame(kind) for kind in range(0x1F))
    assert is_multipath_frame(0x3E77)
    assert not is_multipath_frame(0x15228C05)  # PATH_ABANDON of older drafts
