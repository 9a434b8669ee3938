"""Who arrived: each message once, and when. The clock is time.perf_counter_ns."""

import asyncio
import math
import time

PATIENCE = 120.0


class Ledger:
    def __init__(self, messages: int) -> None:
        self.messages = messages
        self.at = [0] * messages
        self.seen = self.repeated = self.foreign = 0
        self.done = asyncio.Event()

    def note(self, n: int) -> None:
        if not 0 <= n < self.messages:
            self.foreign += 1
        elif self.at[n]:
            self.repeated += 1
        else:
            self.at[n] = time.perf_counter_ns()
            self.seen += 1
            if self.seen == self.messages:
                self.done.set()

    @property
    def missing(self) -> int:
        return self.messages - self.seen

    async def complete(self) -> None:
        """Waits until all are there."""
        if self.missing:
            await asyncio.wait_for(self.done.wait(), PATIENCE)

    def verdict(self, open_rows: int = 0) -> dict:
        """What goes into the report."""
        found = {"missing": self.missing, "repeated": self.repeated, "foreign": self.foreign, "open": open_rows}
        return {**found, "ok": not any(found.values())}


def latency(nanoseconds: list[int]) -> dict:
    """Percentiles by nearest rank, in milliseconds."""
    ordered = sorted(nanoseconds)

    def rank(share: float) -> float:
        return ordered[max(1, math.ceil(len(ordered) * share)) - 1] / 1e6

    return {"p50": rank(0.5), "p99": rank(0.99), "max": ordered[-1] / 1e6}
