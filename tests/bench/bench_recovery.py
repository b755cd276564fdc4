"""What loss recovery costs: nanoseconds a packet, by burst size and by how much is in flight.

    python tests/bench/bench_recovery.py [--congestion cubic|bbr|reno|none]

Bursts are sent and acknowledged in order, one ACK for each burst, the flight staying as large as it is. The
second column acknowledges with a hole of one packet every 100 bursts, which is then lost.
"""

from __future__ import annotations

import argparse
import gc
import time
from statistics import median

from qtunnel.recovery.congestion import CONGESTION_CONTROLS, make_congestion_control
from qtunnel.recovery.loss_recovery import LossRecovery

SIZE = 1400
PACKETS = 100_000
BURSTS = (1, 8, 46)
IN_FLIGHT = (1000, 5000)
LOSS_EVERY = 100


def run(congestion: str, burst: int, in_flight: int, *, with_loss: bool) -> tuple[float, float]:
    """Return nanoseconds a packet for sending and for acknowledging: of the median event, as others run too."""
    recovery = LossRecovery(congestion=make_congestion_control(congestion, SIZE), max_ack_delay=0.025)
    now, number = 1000.0, 0
    for _ in range(in_flight // burst):
        recovery.on_packets_sent(number, burst, SIZE, now)
        number += burst
        now += 0.0001
    send_ns: list[int] = []
    ack_ns: list[int] = []
    acked, floor, hole = 0, 0, -1
    clock = time.perf_counter_ns
    for index in range(PACKETS // burst):
        now += 0.00001
        if with_loss and index % LOSS_EVERY == 0:
            hole = acked
        top = acked + burst - 1
        if hole >= floor:
            ranges = [(hole + 1, top), (floor, hole - 1)] if hole > floor else [(hole + 1, top)]
            if top - hole > 3 * burst + 3:
                floor, hole = hole + 1, -1
        else:
            ranges = [(floor, top)]
        if ranges[0][0] > ranges[0][1]:
            ranges = ranges[1:] or [(floor, max(top - 1, floor))]
        start = clock()
        recovery.on_ack_received(ranges, 0.0, now)
        middle = clock()
        recovery.on_packets_sent(number, burst, SIZE, now)
        send_ns.append(clock() - middle)
        ack_ns.append(middle - start)
        number += burst
        acked += burst
    return median(send_ns) / burst, median(ack_ns) / burst


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Costs of loss recovery.")
    parser.add_argument("--congestion", choices=CONGESTION_CONTROLS, default="cubic")
    congestion = parser.parse_args().congestion
    gc.freeze()
    print(f"{congestion}, {SIZE}-byte packets; ns a packet (us an event)")
    print(f"{'burst':>6}{'in flight':>11}{'send':>18}{'ack':>18}{'send, loss':>18}{'ack, loss':>18}")
    for burst in BURSTS:
        for in_flight in IN_FLIGHT:
            cells = [*run(congestion, burst, in_flight, with_loss=False)]
            cells += run(congestion, burst, in_flight, with_loss=True)
            figures = "".join(f"{f'{each:.0f} ({each * burst / 1000:.2f})':>18}" for each in cells)
            print(f"{burst:>6}{in_flight:>11}{figures}")


if __name__ == "__main__":
    main()
