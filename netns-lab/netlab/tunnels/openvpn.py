"""OpenVPN in user space (no kernel offload), UDP, AES-128-GCM, sizes at their defaults."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Interface, IPv6Interface
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from netlab.addresses import IPAddress
from netlab.host import Host
from netlab.tunnels.base import Feature, Inner, Tunnel
from netlab.tunnels.device import wait_for_device

POOL4: Final = IPv4Interface("10.8.0.1/24")
POOL6: Final = IPv6Interface("fd08::1/64")
PORT: Final = 1194
DEVICE: Final = "ovpn0"


class OpenVpn(Tunnel):
    """The Debian package."""

    name: ClassVar[str] = "openvpn"
    about: ClassVar[str] = "OpenVPN 2.6, user space, AES-128-GCM over UDP"
    lacks: ClassVar[frozenset[Feature]] = frozenset({Feature.NAMES, Feature.ABLATIONS})
    packages: ClassVar[Mapping[str, str]] = MappingProxyType({"openvpn": "openvpn"})

    def start_server(self) -> None:
        """Start it with certificates made for this run."""
        self._files = self.site.network.directory / "openvpn"
        _make_certificates(self._files)
        advertised: list[str] = []
        if self.site.lan is not None:
            lan = self.site.lan.subnet
            advertised = ["--push", f"route {lan.ipv4.network_address} {lan.ipv4.netmask}"]
            advertised += ["--push", f"route-ipv6 {lan.ipv6}"]
        network = POOL4.network
        self.server = self.site.server.start(
            [
                *self._common("server"),
                *(
                    "--server",
                    str(network.network_address),
                    str(network.netmask),
                    "--server-ipv6",
                    str(POOL6.network),
                ),
                *(
                    "--proto",
                    "udp6" if self.options.mixed else f"udp{self.options.outer}",
                    "--port",
                    str(PORT),
                    "--dh",
                    "none",
                ),
                *("--keepalive", "10", "60", "--duplicate-cn", "--multihome", *advertised),
            ],
            name="openvpn-server",
        )
        self.server.wait_for("Initialization Sequence Completed")

    def start_client(self, host: Host, *, outer: int | None = None) -> Inner:
        """Start a client."""
        address = self.site.server_address(outer or self.options.outer, host)
        daemon = host.start(
            [
                *self._common("client"),
                *("--client", "--remote", str(address), str(PORT), f"udp{address.version}"),
                *("--nobind", "--remote-cert-tls", "server"),
            ],
            name="openvpn-client",
        )
        daemon.wait_for("Initialization Sequence Completed", timeout=20)
        inner = wait_for_device(host, networks=(POOL4.network, POOL6.network), daemon=daemon)
        self.clients.append(inner)
        return inner

    def server_inner(self, version: int) -> IPAddress:
        """Return the server's address inside."""
        return POOL4.ip if version == 4 else POOL6.ip

    def _common(self, role: str) -> Sequence[str]:
        files = [f"--{what}" for what in ("ca", "cert", "key")]
        names = [self._files / name for name in ("ca.pem", f"{role}.pem", f"{role}.key")]
        return [
            *("openvpn", "--dev", DEVICE, "--dev-type", "tun", "--topology", "subnet", "--disable-dco"),
            *("--cipher", "AES-128-GCM", "--data-ciphers", "AES-128-GCM", "--auth-nocache", "--verb", "3"),
            *(part for pair in zip(files, map(str, names), strict=True) for part in pair),
        ]


def _make_certificates(directory: Path) -> None:
    directory.mkdir(exist_ok=True)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _certificate("lab CA", authority_key.public_key(), None, authority_key, None)
    (directory / "ca.pem").write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    for role, usage in (("server", ExtendedKeyUsageOID.SERVER_AUTH), ("client", ExtendedKeyUsageOID.CLIENT_AUTH)):
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _certificate(f"lab {role}", key.public_key(), authority, authority_key, usage)
        (directory / f"{role}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        (directory / f"{role}.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )


def _certificate(
    name: str,
    key: ec.EllipticCurvePublicKey,
    authority: x509.Certificate | None,
    signer: ec.EllipticCurvePrivateKey,
    usage: x509.ObjectIdentifier | None,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if authority is None else authority.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=authority is None, path_length=None), critical=True)
    )
    if usage is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        builder = builder.add_extension(_digital_signature(), critical=True)
    return builder.sign(signer, hashes.SHA256())


def _digital_signature() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
