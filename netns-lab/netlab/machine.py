"""What machine this is and how quiet it was: figures mean little without it."""

from __future__ import annotations

import hashlib
import os
import platform
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

NOISY_STEAL: Final = 0.05
"""Share of CPU time taken by other virtual machines above which a throughput proves nothing."""
SPIN_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """The kernel's count of CPU time over all cores since it started, in ticks."""

    total: int
    steal: int

    @classmethod
    def now(cls) -> Self:
        """Read it."""
        fields = [int(text) for text in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return cls(sum(fields), fields[7])

    def steal_since(self, earlier: CpuTimes) -> float:
        """Return the share of steal between two readings, from 0 to 1."""
        total = self.total - earlier.total
        return (self.steal - earlier.steal) / total if total > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine, once for each run of the lab."""

    kernel: str
    cores: int
    processor: str
    memory_mb: int
    python: str

    @classmethod
    def here(cls) -> Self:
        """Describe this machine; nothing in it tells one machine from another of its kind."""
        model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
        return cls(
            kernel=platform.release(),
            cores=os.cpu_count() or 1,
            processor=model[0].partition(":")[2].strip() if model else platform.machine(),
            memory_mb=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
            python=platform.python_version(),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self)


def calibrate() -> float:
    """Hash for a tenth of a second and return MB/s: virtual machines may slow down without any steal to see."""
    block = bytes(1 << 16)
    count = 0
    began = time.perf_counter()
    while (took := time.perf_counter() - began) < SPIN_SECONDS:
        hashlib.sha256(block).digest()
        count += 1
    return count * len(block) / took / 1e6
