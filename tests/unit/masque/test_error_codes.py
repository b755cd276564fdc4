from qtunnel.masque.error_codes import HttpErrorCode


def test_the_codes_are_those_of_the_registry() -> None:
    assert {code.name: hex(code) for code in HttpErrorCode} == {
        "H3_DATAGRAM_ERROR": "0x33",
        "H3_NO_ERROR": "0x100",
        "H3_EXCESSIVE_LOAD": "0x107",
        "H3_REQUEST_CANCELLED": "0x10c",
        "H3_MESSAGE_ERROR": "0x10e",
    }
