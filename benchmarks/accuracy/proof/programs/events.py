"""events.py EVENTS: customers go from queue to queue; arrivals and ends lie on a heap."""

import heapq
import sys


class Station:
    def __init__(self, number):
        self.number, self.waiting, self.busy, self.served = number, [], False, 0


def draws(state):
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
        yield (state >> 33) / float(1 << 31)


def main(limit):
    stations = [Station(number) for number in range(64)]
    random, heap, order = draws(5), [], 0
    for station in stations:
        for _ in range(40):
            heapq.heappush(heap, (next(random), order, station, True))
            order += 1
    now = 0.0
    for _ in range(limit):
        now, _, station, arrives = heapq.heappop(heap)
        if arrives:
            station.waiting.append(now)
        else:
            station.busy = False
            station.served += 1
            to = stations[int(next(random) * len(stations))]
            order += 1
            heapq.heappush(heap, (now + 0.1 * next(random), order, to, True))
        if station.waiting and not station.busy:
            station.busy = True
            station.waiting.pop()
            order += 1
            heapq.heappush(heap, (now + next(random), order, station, False))
    print(f"{limit} events, {sum(s.served for s in stations)} served, at {now:.6f}")


main(int(sys.argv[1]))
