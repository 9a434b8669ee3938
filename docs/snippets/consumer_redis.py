"""Handles each event of Postrider once, with Redis. Scripts, keys and values are those of the Rust library.

    # Without Redis it fails and does not hang. By itself the client would try for longer than a claim lasts.
    client = redis.Redis(host, socket_timeout=3, socket_connect_timeout=3, retry=Retry(NoBackoff(), 1))
    inbox = RedisInbox(client, "mailer")
    outcome = inbox.run_once(headers["event_id"], lambda: send(body))
    # Acknowledge if outcome.may_ack. Otherwise, and after every exception, let the broker bring it again.
"""

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import redis

SCRIPTS = Path(__file__).with_name("lua")


class Outcome(Enum):
    RAN = "ran"
    ALREADY_PROCESSED = "processed"
    IN_PROGRESS = "in progress"
    STALE = "stale"

    @property
    def may_ack(self) -> bool:
        return self in (Outcome.RAN, Outcome.ALREADY_PROCESSED)


class ClaimLost(Exception):
    """Another delivery has taken the event. Do not acknowledge; what the handler did may be done twice."""


class InProgress(Exception):
    """Another delivery is being handled. Do not acknowledge."""


class RedisInbox:
    def __init__(self, client: redis.Redis, consumer: str, *, prefix: str = "pf:evt:processed",
                 claim_ms: int = 30_000, keep_ms: int = 7 * 24 * 60 * 60 * 1000):
        """A claim outlives a consumer that died by `claim_ms`; an event counts as processed for `keep_ms`."""
        self.consumer, self.prefix, self.claim_ms, self.keep_ms = consumer, prefix, claim_ms, keep_ms
        names = ("begin", "confirm", "release", "extend", "mark")
        self._scripts = {name: client.register_script((SCRIPTS / f"{name}.lua").read_text()) for name in names}

    def begin(self, event: str, attempt: str = "") -> "Claim | Outcome":
        """Takes a delivery, or says why not. `attempt` is "<replayed>.<number>"; then an older one is stale."""
        claim = Claim(self, event, uuid.uuid4().hex, attempt)
        answer = self.call("begin", event, claim.token, self.claim_ms, attempt)
        return claim if answer == "first" else Outcome(answer)

    def run_once(self, event: str, handler: Callable[[], None], attempt: str = "") -> Outcome:
        """Handles a delivery unless that was done before, and remembers it if the handler does not raise."""
        claim = self.begin(event, attempt)
        if isinstance(claim, Outcome):
            return claim
        extender = Extender(claim)
        try:
            handler()
        except BaseException:
            extender.stop()
            try:
                claim.release()
            except redis.RedisError:
                pass  # the claim runs out
            raise
        extender.stop()
        claim.commit()
        return Outcome.RAN

    def check_and_mark_processed(self, event: str, ttl_ms: int) -> bool:
        """Whether it was processed already; from now on it counts as such, although its handler has yet to run."""
        answer = self.call("mark", event, uuid.uuid4().hex, ttl_ms)
        if answer == "in progress":
            raise InProgress(event)
        return answer == "processed"

    def call(self, script: str, event: str, *arguments: str | int) -> str:
        key = f"{self.prefix}:{self.consumer}:{uuid.UUID(event)}"
        run = self._scripts[script]
        answer, _ = run(keys=[key], args=arguments)
        return answer.decode() if isinstance(answer, bytes) else answer


@dataclass(frozen=True)
class Claim:
    """The right to handle an event."""

    inbox: RedisInbox
    event: str
    token: str
    attempt: str

    def commit(self) -> None:
        """The handler has succeeded. Acknowledge after this, and only if it does not raise."""
        if self.inbox.call("confirm", self.event, self.token, self.inbox.keep_ms, self.attempt) == "lost":
            raise ClaimLost(self.event)

    def release(self) -> bool:
        """The handler has failed: lets the next delivery in."""
        return self.inbox.call("release", self.event, self.token, self.inbox.keep_ms) != "lost"

    def extend(self) -> bool:
        """The handler still runs. Answers whether the event is still ours."""
        return self.inbox.call("extend", self.event, self.token, self.inbox.claim_ms, self.attempt) != "lost"


class Extender:
    """Extends a claim three times per its length, until it is stopped."""

    def __init__(self, claim: Claim):
        self._claim, self._done = claim, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(self._claim.inbox.claim_ms / 3000):
            try:
                self._claim.extend()
            except redis.RedisError:
                pass  # tried again; if the claim runs out, the commit finds out whether somebody has taken it
