from __future__ import annotations

import inspect

import pytest

from qtunnel import errors
from qtunnel.errors import (
    ConfigError,
    DatagramTooLargeError,
    PeerProtocolError,
    QTunnelError,
    SystemSetupError,
)


def tree() -> list[type[Exception]]:
    return [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, Exception)]


@pytest.mark.parametrize("error", tree(), ids=lambda error: error.__name__)
def test_every_error_is_ours_and_drawn_in_the_tree(error: type[Exception]) -> None:
    assert issubclass(error, QTunnelError)
    assert error.__name__ in (errors.__doc__ or "")
    assert error.__doc__


def test_errors_carry_the_answer() -> None:
    assert PeerProtocolError("bad capsule", error_code=0x10E).error_code == 0x10E
    assert DatagramTooLargeError("too large", max_payload=1200).max_payload == 1200
    assert ConfigError("is odd", field="port").field == "port"
    assert SystemSetupError("no TUN", remedy="Type: modprobe tun").remedy == "Type: modprobe tun"


def test_messages_name_the_setting_and_say_what_to_type() -> None:
    assert str(ConfigError("is odd", field="port")) == "port: is odd"
    assert str(ConfigError("is odd")) == "is odd"
    assert str(SystemSetupError("no TUN", remedy="Type: modprobe tun")) == "no TUN. Type: modprobe tun"
