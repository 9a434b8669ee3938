"""The server: a new database for every job, and what the figures depend on. By psql, so that no driver is needed."""

import subprocess
from urllib.parse import urlsplit, urlunsplit

PREFIX = "postrider_peers_"
SETTINGS = (
    "server_version fsync synchronous_commit full_page_writes wal_level shared_buffers max_wal_size checkpoint_timeout "
    "autovacuum max_connections"
).split()
DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}


class Refused(Exception):
    """A statement that the server did not do."""


class Server:
    def __init__(self, url: str) -> None:
        self.url = url
        self.made = 0

    def ask(self, sql: str) -> str:
        command = ["psql", "--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1", self.url]
        done = subprocess.run([*command, "--command", sql], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Refused(f"the server refused {sql!r}: {done.stderr.strip()}")
        return done.stdout.strip()

    def settings(self) -> dict[str, str]:
        return {name: self.ask(f"show {name}") for name in SETTINGS}

    def database(self) -> "Database":
        self.made += 1
        return Database(self, f"{PREFIX}{self.made}")


class Database:
    """A database that is there within `with`, and the address of it."""

    def __init__(self, server: Server, name: str) -> None:
        self.server, self.name = server, name

    def __enter__(self) -> str:
        self.drop()
        self.server.ask(f"create database {self.name} template template0")
        parts = urlsplit(self.server.url)
        return urlunsplit(parts._replace(path=f"/{self.name}"))

    def __exit__(self, *_: object) -> None:
        self.drop()

    def drop(self) -> None:
        self.server.ask(f"drop database if exists {self.name} with (force)")


def not_durable(settings: dict[str, str]) -> list[str]:
    """What makes figures worthless: a server that does not write what it says it wrote."""
    return [f"{name} is {settings[name]}" for name, value in DURABLE.items() if settings[name] != value]
