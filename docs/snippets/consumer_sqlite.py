"""Handles each event of Postrider once, in one transaction of SQLite with what the handler writes.

    connection = sqlite3.connect("shop.db", isolation_level=None, timeout=2)
    outcome = run_once(connection, "mailer", headers["event_id"], lambda: save(connection, body))
    # Acknowledge if outcome.may_ack. Otherwise, and after every exception, let the broker bring it again.

Python 3.11 or newer.
"""

import sqlite3
import uuid
from collections.abc import Callable
from enum import Enum

FIRST = "insert into inbox_messages (consumer, event_id) values (?, ?) on conflict (consumer, event_id) do nothing"


class Outcome(Enum):
    RAN = "ran"
    ALREADY_PROCESSED = "processed"
    IN_PROGRESS = "in progress"

    @property
    def may_ack(self) -> bool:
        return self is not Outcome.IN_PROGRESS


def run_once(connection: sqlite3.Connection, consumer: str, event: str, handler: Callable[[], None]) -> Outcome:
    """Runs the handler and remembers the event with one commit."""
    if connection.isolation_level is not None or connection.in_transaction:
        raise RuntimeError("connect with isolation_level=None, and leave the transaction to run_once")
    try:
        connection.execute("begin immediate")  # waits for its turn, as long as `timeout` says
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
            return Outcome.IN_PROGRESS  # somebody writes, perhaps for the same event
        raise
    try:
        first = connection.execute(FIRST, (consumer, str(uuid.UUID(event)))).rowcount == 1
        if first:
            handler()
        if not connection.in_transaction:
            raise RuntimeError("the transaction was ended by the handler, or by SQLite after an error")
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise
    return Outcome.RAN if first else Outcome.ALREADY_PROCESSED
