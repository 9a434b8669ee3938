"""Handles each event of Postrider once, in one transaction of PostgreSQL with what the handler writes.

    outcome = run_once(connection, "mailer", headers["event_id"], lambda: save(connection, body))
    # Acknowledge if outcome.may_ack. Otherwise, and after every exception, let the broker bring it again.

Another delivery of the same event waits until this transaction ends. Connect with a `lock_timeout`, such as
`psycopg.connect(url, options="-c lock_timeout=2s")`, to be told IN_PROGRESS after that time instead.
"""

from collections.abc import Callable
from enum import Enum

import psycopg
from psycopg.pq import TransactionStatus

FIRST = "insert into inbox_messages (consumer, event_id) values (%s, %s) on conflict (consumer, event_id) do nothing"
PROCESSED = "select 1 from inbox_messages where consumer = %s and event_id = %s"
NEWEST = """
insert into inbox_attempts as seen (consumer, event_id, replayed, attempt) values (%s, %s, %s, %s)
on conflict (consumer, event_id) do update
set replayed = excluded.replayed, attempt = excluded.attempt, expires_at = excluded.expires_at
where (seen.replayed, seen.attempt) <= (excluded.replayed, excluded.attempt)
"""


class Outcome(Enum):
    RAN = "ran"
    ALREADY_PROCESSED = "processed"
    IN_PROGRESS = "in progress"
    STALE = "stale"

    @property
    def may_ack(self) -> bool:
        return self in (Outcome.RAN, Outcome.ALREADY_PROCESSED)


def run_once(connection: psycopg.Connection, consumer: str, event: str, handler: Callable[[], None],
             attempt: tuple[int, int] | None = None) -> Outcome:
    """Runs the handler and remembers the event with one commit. `attempt` is (replayed, number); then an older one is stale."""
    if connection.info.transaction_status != TransactionStatus.IDLE:
        raise RuntimeError("a transaction is open: its commit would come after the acknowledgement")
    if attempt is not None and not is_newest(connection, consumer, event, attempt):
        with connection.transaction():
            processed = connection.execute(PROCESSED, (consumer, event)).fetchone()
        return Outcome.ALREADY_PROCESSED if processed else Outcome.STALE
    outcome = None
    try:
        with connection.transaction():
            if not is_first(connection, consumer, event):
                return Outcome.ALREADY_PROCESSED
            handler()
            # A handler that went past an error, or ended the transaction, would seem to have succeeded.
            if connection.info.transaction_status != TransactionStatus.INTRANS:
                raise RuntimeError("the handler went on after an error of the database: nothing would be committed")
            outcome = Outcome.RAN
    except InProgress:
        return Outcome.IN_PROGRESS
    if outcome is None:  # psycopg.Rollback leaves the block without an error
        raise RuntimeError("the handler rolled back: nothing was committed")
    return outcome


class InProgress(Exception):
    """Another delivery has the event for longer than we wait."""


def is_first(connection: psycopg.Connection, consumer: str, event: str) -> bool:
    """Remembers the event in the open transaction, unless it was handled before."""
    try:
        return connection.execute(FIRST, (consumer, event)).rowcount == 1
    except psycopg.errors.LockNotAvailable as error:
        raise InProgress from error


def is_newest(connection: psycopg.Connection, consumer: str, event: str, attempt: tuple[int, int]) -> bool:
    """Notes the attempt, at once and for good, unless a newer one has been here."""
    with connection.transaction():
        return connection.execute(NEWEST, (consumer, event, *attempt)).rowcount == 1
