"""The experiments, in the order of `lab list`. A new one is a module here and a line in this list."""

from __future__ import annotations

from netlab.experiment import Experiment
from netlab.experiments.df_bit import DfBit
from netlab.experiments.full_packets import FullPackets
from netlab.experiments.latency import Latency
from netlab.experiments.many_clients import ManyClients
from netlab.experiments.overhead import Overhead
from netlab.experiments.own_traffic import OwnTraffic
from netlab.experiments.pmtu_card import PmtuCard
from netlab.experiments.shaped import Shaped
from netlab.experiments.shrink import Shrink
from netlab.experiments.side_by_side import SideBySide
from netlab.experiments.small_packets import SmallPackets
from netlab.experiments.socket_buffer import SocketBuffer
from netlab.experiments.throughput import Throughput

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        Overhead(),
        FullPackets(),
        DfBit(),
        SocketBuffer(),
        OwnTraffic(),
        SideBySide(),
        ManyClients(),
        Throughput(),
        Shaped(),
        Latency(),
        SmallPackets(),
        Shrink(),
        PmtuCard(),
    )
}


def find(name: str) -> Experiment | None:
    """Return an experiment by its name or number (such as E1), None if there is none."""
    for experiment in EXPERIMENTS.values():
        if name.lower() in (experiment.name, experiment.number.lower()):
            return experiment
    return None
