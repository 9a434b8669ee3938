"""The three jobs, for any peer in Python: the same as ../rust/src/jobs.rs and ../node/jobs.mjs do."""

import argparse
import asyncio
import json
import sys
import time
from typing import Any, Protocol

import psycopg
import uvloop
from ledger import Ledger, latency

# Messages in a transaction while a backlog is written.
FILL = 1_000
# Messages before those whose latency counts.
WARM_UP = 20
# Transactions of each client before the clock starts.
WARM_UP_WRITES = 3
LOOK = 0.005
PATIENCE = 60.0
PAD = ("abcdefghijklmnopqrstuvwxyz0123456789" * 5)[:175]


def letter(n: int) -> dict:
    return {"n": n, "pad": PAD}


def letters(first: int, count: int) -> list[dict]:
    return [letter(n) for n in range(first, first + count)]


class Peer(Protocol):
    """A queue on PostgreSQL, in a database of its own that is empty before set_up."""

    name: str
    # SQL for the number of each message that waits, and for how many are not settled.
    numbers: str
    open: str

    async def set_up(self, args: argparse.Namespace) -> None: ...
    def settings(self) -> dict[str, str]: ...
    async def client(self) -> Any: ...
    async def write(self, client: Any, first: int, count: int) -> None:
        """Writes in a transaction of the caller, and commits it."""

    async def release(self, client: Any) -> None: ...
    async def start(self, ledger: Ledger) -> None: ...
    async def stop(self) -> None: ...


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=["enqueue", "drain", "latency"])
    parser.add_argument("--url", required=True)
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--per-call", type=int, default=1)
    parser.add_argument("--messages", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rate", type=int, default=50)
    parser.add_argument("--with", dest="chosen", action="append", default=[], metavar="NAME=VALUE")
    args = parser.parse_args()
    args.chosen = dict(pair.split("=", 1) for pair in args.chosen)
    return args


async def settle_down(side: psycopg.AsyncConnection) -> None:
    """The server finishes what earlier work left to do."""
    await side.execute("vacuum analyze")
    await side.execute("checkpoint")


async def unsettled(peer: Peer, side: psycopg.AsyncConnection) -> int:
    """How many messages are not settled."""
    (rows,) = await (await side.execute(peer.open)).fetchone()
    return rows


async def settled(peer: Peer, side: psycopg.AsyncConnection) -> int:
    """Waits until every message is settled; answers how many are not."""
    began = time.perf_counter()
    while True:
        rows = await unsettled(peer, side)
        if rows == 0 or time.perf_counter() - began > PATIENCE:
            return rows
        await asyncio.sleep(LOOK)


async def enqueue(peer: Peer, side: psycopg.AsyncConnection, args: argparse.Namespace) -> dict:
    clients = [await peer.client() for _ in range(args.clients)]
    written = 0
    for client in clients:
        for _ in range(WARM_UP_WRITES):
            await peer.write(client, written, args.per_call)
            written += args.per_call
    warm = written
    await settle_down(side)
    began = time.perf_counter()

    async def writing(client: Any) -> None:
        nonlocal written
        while time.perf_counter() - began < args.seconds:
            first = written
            written += args.per_call
            await peer.write(client, first, args.per_call)

    await asyncio.gather(*(writing(client) for client in clients))
    seconds = time.perf_counter() - began
    for client in clients:
        await peer.release(client)
    ledger = Ledger(written)
    async for (n,) in await side.execute(peer.numbers):
        ledger.note(n)
    messages = written - warm
    return {"messages": messages, "seconds": seconds, "per_second": messages / seconds, **ledger.verdict()}


async def drain(peer: Peer, side: psycopg.AsyncConnection, args: argparse.Namespace) -> dict:
    client = await peer.client()
    for first in range(0, args.messages, FILL):
        await peer.write(client, first, min(FILL, args.messages - first))
    await peer.release(client)
    await settle_down(side)
    waiting = await unsettled(peer, side)
    if waiting < args.messages:
        raise RuntimeError(f"the table holds {waiting} of {args.messages} messages")
    ledger = Ledger(args.messages)
    began = time.perf_counter()
    await peer.start(ledger)
    await ledger.complete()
    open_rows = await settled(peer, side)
    seconds = time.perf_counter() - began
    await peer.stop()
    per_second = args.messages / seconds
    return {"messages": args.messages, "seconds": seconds, "per_second": per_second, **ledger.verdict(open_rows)}


async def latencies(peer: Peer, side: psycopg.AsyncConnection, args: argparse.Namespace) -> dict:
    messages = WARM_UP + max(1, int(args.rate * args.seconds))
    client = await peer.client()
    await settle_down(side)
    ledger = Ledger(messages)
    await peer.start(ledger)
    began = time.perf_counter()
    written = []
    for n in range(messages):
        await asyncio.sleep(max(0.0, n / args.rate - (time.perf_counter() - began)))
        written.append(time.perf_counter_ns())
        await peer.write(client, n, 1)
    await ledger.complete()
    seconds = time.perf_counter() - began
    open_rows = await settled(peer, side)
    await peer.release(client)
    await peer.stop()
    took = latency([ledger.at[n] - written[n] for n in range(WARM_UP, messages)])
    found = {"messages": messages, "seconds": seconds, "per_second": messages / seconds, "latency_ms": took}
    return {**found, **ledger.verdict(open_rows)}


JOBS = {"enqueue": enqueue, "drain": drain, "latency": latencies}


async def run(peer: Peer) -> bool:
    args = arguments()
    await peer.set_up(args)
    side = await psycopg.AsyncConnection.connect(args.url, autocommit=True)
    found = await JOBS[args.job](peer, side, args)
    await side.close()
    print(json.dumps({"peer": peer.name, "job": args.job, **found, "settings": peer.settings()}), flush=True)
    return found["ok"]


def main(peer: Peer) -> None:
    """The program of a peer."""
    sys.exit(0 if uvloop.run(run(peer)) else 1)
