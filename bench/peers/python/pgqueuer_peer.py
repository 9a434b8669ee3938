"""pgqueuer, as its guide to tuning has it: asyncpg, one connection per consumer, its settings of autovacuum."""

import argparse
import asyncio
import json
from datetime import timedelta

import asyncpg
from jobs import letter, letters, main
from ledger import Ledger
from pgqueuer import AsyncpgDriver, PgQueuer, Queries
from pgqueuer.models import Job


class Pgqueuer:
    name = "pgqueuer"
    numbers = "select (convert_from(payload, 'UTF8')::json ->> 'n')::bigint from pgqueuer"
    open = "select count(*) from pgqueuer"

    async def set_up(self, args: argparse.Namespace) -> None:
        self.url = args.url
        self.batch = int(args.chosen.get("batch_size", 100))
        # Several share a backlog; a message alone is soonest with whom the one connection is free.
        self.consumers = int(args.chosen.get("consumers", 5 if args.job == "drain" else 1))
        connection = await asyncpg.connect(self.url)
        queries = Queries(AsyncpgDriver(connection))
        await queries.install()
        await queries.optimize_autovacuum()
        await connection.close()

    def settings(self) -> dict[str, str]:
        return {
            "driver": "asyncpg, with uvloop",
            "batch_size": str(self.batch),
            "consumers": str(self.consumers),
            "durability": "durable",
            "pgq autovac": "applied",
            "enqueue": "Queries.enqueue in the caller's transaction",
        }

    async def client(self) -> tuple[asyncpg.Connection, Queries]:
        connection = await asyncpg.connect(self.url)
        return connection, Queries(AsyncpgDriver(connection))

    async def write(self, client: tuple[asyncpg.Connection, Queries], first: int, count: int) -> None:
        connection, queries = client
        async with connection.transaction():
            if count == 1:
                await queries.enqueue("letter", json.dumps(letter(first)).encode())
            else:
                payloads = [json.dumps(it).encode() for it in letters(first, count)]
                await queries.enqueue(["letter"] * count, payloads, [0] * count)

    async def release(self, client: tuple[asyncpg.Connection, Queries]) -> None:
        await client[0].close()

    async def start(self, ledger: Ledger) -> None:
        async def handle(job: Job) -> None:
            ledger.note(json.loads(job.payload)["n"])

        self.running, self.managers = [], []
        for _ in range(self.consumers):
            manager = PgQueuer(AsyncpgDriver(await asyncpg.connect(self.url)))
            manager.entrypoint("letter")(handle)
            self.managers.append(manager)
            run = manager.run(dequeue_timeout=timedelta(seconds=30), batch_size=self.batch)
            self.running.append(asyncio.create_task(run))

    async def stop(self) -> None:
        for manager in self.managers:
            manager.shutdown.set()
        await asyncio.wait(self.running, timeout=5)


main(Pgqueuer())
