"""procrastinate: as many sub-workers as help, a connection for each, finished jobs are deleted."""

import argparse
import asyncio
import contextlib
import logging

import procrastinate
import psycopg
from jobs import letter, letters, main
from ledger import Ledger

logging.getLogger("procrastinate").setLevel(logging.ERROR)


class Procrastinate:
    name = "procrastinate"
    numbers = "select (args ->> 'n')::bigint from procrastinate_jobs"
    open = "select count(*) from procrastinate_jobs"

    async def set_up(self, args: argparse.Namespace) -> None:
        self.url = args.url
        self.concurrency = int(args.chosen.get("concurrency", 10))
        connector = procrastinate.PsycopgConnector(conninfo=self.url, max_size=self.concurrency + 1)
        self.app = procrastinate.App(connector=connector)
        self.ledger: Ledger | None = None

        @self.app.task(name="letter", queue="letters")
        async def handle(n: int, pad: str) -> None:
            self.ledger.note(n)

        self.task = handle
        await self.app.open_async()
        await self.app.schema_manager.apply_schema_async()

    def settings(self) -> dict[str, str]:
        return {
            "connector": "PsycopgConnector, with uvloop",
            "concurrency": str(self.concurrency),
            "max_size": str(self.concurrency + 1),
            "delete_jobs": "always",
            "listen_notify": "true",
            "enqueue": "defer_async and batch_defer_async on the caller's connection",
        }

    async def client(self) -> psycopg.AsyncConnection:
        return await psycopg.AsyncConnection.connect(self.url)

    async def write(self, client: psycopg.AsyncConnection, first: int, count: int) -> None:
        task = self.task.configure(connection=client)
        if count == 1:
            await task.defer_async(**letter(first))
        else:
            await task.batch_defer_async(*letters(first, count))
        await client.commit()

    async def release(self, client: psycopg.AsyncConnection) -> None:
        await client.close()

    async def start(self, ledger: Ledger) -> None:
        self.ledger = ledger
        work = self.app.run_worker_async(
            concurrency=self.concurrency, delete_jobs="always", install_signal_handlers=False, listen_notify=True
        )
        self.running = asyncio.create_task(work)

    async def stop(self) -> None:
        self.running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.running


main(Procrastinate())
