"""What every back end can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from netlab.host import Host
from netlab.ledger import Ledger
from netlab.shape import Shape


class Backend(ABC):
    """Shapes what leaves hosts by their devices."""

    name: ClassVar[str]

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    @staticmethod
    @abstractmethod
    def is_available(host: Host) -> bool:
        """Tell whether this kernel can do it, by trying it on a host."""

    @abstractmethod
    def attach(self, host: Host, device: str, shape: Shape) -> None:
        """Shape what leaves a host by a device from now on."""

    @abstractmethod
    def change(self, host: Host, device: str, shape: Shape) -> None:
        """Change the shape while packets are under way."""

    @abstractmethod
    def unintended_drops(self, host: Host) -> int:
        """Return how many packets were lost at a host because the back end did not keep up; 0 if all is well."""

    @abstractmethod
    def cpu_seconds(self) -> float | None:
        """Return the CPU time the back end's process has used; None if it is the kernel."""

    @abstractmethod
    def close(self) -> None:
        """End what runs; the namespaces take the rest with them."""
