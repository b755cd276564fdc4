"""Adapters: how each tunnel is started, entered and stopped. One page each; a new one is also a line here."""

from __future__ import annotations

from netlab.tunnels.base import Tunnel
from netlab.tunnels.mqvpn import Mqvpn, MqvpnCubic
from netlab.tunnels.none import NoTunnel
from netlab.tunnels.openvpn import OpenVpn
from netlab.tunnels.qtunnel import QTunnel
from netlab.tunnels.wireguard import WireGuardGo

__all__ = ["TUNNELS"]

TUNNELS: dict[str, type[Tunnel]] = {
    tunnel.name: tunnel for tunnel in (QTunnel, NoTunnel, OpenVpn, WireGuardGo, Mqvpn, MqvpnCubic)
}
