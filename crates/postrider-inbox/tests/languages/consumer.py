"""A consumer in Python that does what a test tells it, with the modules that the guide shows.

Arguments: the directory of those modules, the inbox (redis, postgres or sqlite) and its address. Reads a line of JSON per
command and answers with one: {"answer": …}, or {"error": the name of the exception}. The handler of a `run` answers "first"
and does then what the next line says: succeed, fail, swallow an error of the database, or end the transaction.
"""

import json
import sys

directory, kind, address = sys.argv[1:]
sys.path.insert(0, directory)


class Told(Exception):
    """The handler fails, because the test said so."""


def answer(value):
    print(json.dumps({"answer": value}), flush=True)


def handle(command, execute):
    execute(f"insert into effects (event) values ('{command['event']}')")
    answer("first")
    how = json.loads(sys.stdin.readline())["how"]
    if how == "fail":
        raise Told
    if how == "rollback":
        execute("rollback")
    if how == "undo":
        import psycopg

        raise psycopg.Rollback
    if how == "swallow":
        try:
            execute("insert into nowhere values (1)")
        except Exception:  # what a careless handler does
            pass


class Redis:
    def __init__(self):
        import consumer_redis
        import redis

        self.client = redis.Redis.from_url(address, socket_timeout=3, socket_connect_timeout=3)
        self.module, self.claims = consumer_redis, {}

    def inbox(self, command):
        return self.module.RedisInbox(self.client, command["consumer"], claim_ms=command.get("claim_ms", 60_000))

    def run(self, command):
        handler = lambda: handle(command, lambda _: None)
        return self.inbox(command).run_once(command["event"], handler, command.get("attempt", "")).value

    def begin(self, command):
        entry = self.inbox(command).begin(command["event"], command.get("attempt", ""))
        if isinstance(entry, self.module.Outcome):
            return entry.value
        self.claims[command["event"]] = entry
        return "first"

    def settle(self, command):
        return getattr(self.claims[command["event"]], command["how"])()

    def mark(self, command):
        return self.inbox(command).check_and_mark_processed(command["event"], 60_000)


class Postgres:
    def __init__(self):
        import consumer_postgres
        import psycopg

        self.module, self.connection = consumer_postgres, psycopg.connect(address, options="-c lock_timeout=200ms")

    def run(self, command):
        attempt = tuple(int(part) for part in command["attempt"].split(".")) if "attempt" in command else None
        handler = lambda: handle(command, self.connection.execute)
        return self.module.run_once(self.connection, command["consumer"], command["event"], handler, attempt).value


class Sqlite:
    def __init__(self):
        import consumer_sqlite
        import sqlite3

        self.module, self.connection = consumer_sqlite, sqlite3.connect(address, isolation_level=None, timeout=0.2)

    def run(self, command):
        # After some errors SQLite ends the transaction; the handler goes on as if nothing had happened.
        execute = lambda sql: self.connection.execute("rollback" if "nowhere" in sql else sql)
        handler = lambda: handle(command, execute)
        return self.module.run_once(self.connection, command["consumer"], command["event"], handler).value


consumer = {"redis": Redis, "postgres": Postgres, "sqlite": Sqlite}[kind]()
for line in iter(sys.stdin.readline, ""):
    order = json.loads(line)
    try:
        answer(getattr(consumer, order["do"])(order))
    except Exception as error:  # it is told to the test
        print(json.dumps({"error": type(error).__name__, "text": str(error)}), flush=True)
