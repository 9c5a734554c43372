"""What many timings say: median, extremes, and ratios within a round."""

import statistics
import time


def timed_ms(action, times):
    """The milliseconds that each of ``times`` calls of ``action`` takes."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        action()
        taken.append((time.perf_counter() - start) * 1e3)
    return taken


def summary(rounds):
    """Median, least and most of all numbers in ``rounds``, a list of lists, and how many they are."""
    numbers = [number for of_round in rounds for number in of_round]
    return {
        "median": statistics.median(numbers),
        "min": min(numbers),
        "max": max(numbers),
        "samples": len(numbers),
    }


def ratio(rounds, baseline):
    """The median over the rounds of the median of ``rounds`` by that of ``baseline``: what slows a round slows both."""
    pairs = zip(rounds, baseline, strict=True)
    return statistics.median(statistics.median(mine) / statistics.median(theirs) for mine, theirs in pairs)
