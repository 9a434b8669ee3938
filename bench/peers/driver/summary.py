"""Median and spread over the rounds, and ratios of Postrider to everybody else, taken within a round."""

from statistics import median

# The figures of each kind of job: a name, how it is read, and whether more is better.
FIGURES = {
    "enqueue": [("per_second", lambda found: found["per_second"])],
    "drain": [("per_second", lambda found: found["per_second"])],
    "latency": [
        ("p50_ms", lambda found: found["latency_ms"]["p50"]),
        ("p99_ms", lambda found: found["latency_ms"]["p99"]),
        ("max_ms", lambda found: found["latency_ms"]["max"]),
    ],
}
OURS = "postrider"


def spread(values: list[float]) -> dict | None:
    if not values:
        return None
    return {"median": median(values), "min": min(values), "max": max(values), "rounds": len(values)}


def summary(kind: str, rounds: list[dict[str, dict]]) -> dict[str, dict]:
    """For each contender and each figure the spread, and the spread of Postrider's figure divided by it."""
    found: dict[str, dict] = {}
    names = list(dict.fromkeys(name for one in rounds for name in one))
    for name in names:
        of_name = found.setdefault(name, {})
        for figure, read in FIGURES[kind]:
            values = [read(one[name]) for one in rounds if name in one]
            both = [one for one in rounds if name in one and OURS in one and read(one[name]) > 0]
            ratios = [read(one[OURS]) / read(one[name]) for one in both]
            of_name[figure] = {"figure": spread(values), "postrider_to_it": spread(ratios)}
    return found
