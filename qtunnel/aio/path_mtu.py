"""What the configuration says of packet sizes, in the words of the transport."""

from __future__ import annotations

from typing import Final, Literal

from qtunnel.config import BlackHoles, LabConfig, QuicConfig
from qtunnel.errors import SystemSetupError
from qtunnel.pmtud.sizes import MIN_UDP_PAYLOAD, link_mtu, udp_payload
from qtunnel.quic.settings import PathMtuSettings

__all__ = ["path_mtu_settings", "told_udp_payload"]

_BLACK_HOLE: Final[dict[BlackHoles, Literal["confirm", "off", "loss_count"]]] = {
    BlackHoles.CONFIRM: "confirm",
    BlackHoles.LOSS_COUNT: "loss_count",
    BlackHoles.OFF: "off",
}


def path_mtu_settings(quic: QuicConfig, lab: LabConfig, interface_mtu: int) -> PathMtuSettings | None:
    """Return how to find the size of packets; None where it is told. interface_mtu: of the local interface."""
    if quic.path_mtu is not None:
        return None
    return PathMtuSettings(
        interface_mtu=interface_mtu,
        ceiling=quic.max_path_mtu,
        floor=quic.min_path_mtu,
        search=quic.path_mtu_search.value,
        black_hole=_BLACK_HOLE[lab.black_holes],
    )


def told_udp_payload(quic: QuicConfig, interface_mtu: int, version: int, where: str) -> int:
    """Return the UDP payload of the path that was told, or of the interface. version: 4 or 6. where: for errors.

    Raises:
        SystemSetupError: it is less than QUIC needs.
    """
    mtu = interface_mtu if quic.path_mtu is None else quic.path_mtu
    payload = udp_payload(mtu, version)
    if payload < MIN_UDP_PAYLOAD:
        raise SystemSetupError(
            f"{where} carries IP packets of {mtu} bytes, and QUIC needs {link_mtu(MIN_UDP_PAYLOAD, version)}",
            remedy="Raise path_mtu or the interface's MTU",
        )
    return payload
