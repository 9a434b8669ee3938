"""What is to be run: peers.toml, cut down by the command line."""

import os
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
ROOT = HERE.parent.parent

# Enough to show that everything works, too little for figures.
QUICK_SECONDS = 0.3
QUICK_DRAIN = 2_000
QUICK_SHARE = 10


@dataclass(frozen=True)
class Job:
    name: str
    about: str
    kind: str
    scenario: str
    clients: int = 1
    per_call: int = 1
    rate: int = 0
    seconds: float = 0.0

    def quick(self) -> "Job":
        return replace(self, seconds=min(self.seconds, QUICK_SECONDS))


@dataclass(frozen=True)
class Peer:
    name: str
    about: str
    package: str
    version: str
    run: tuple[str, ...]
    drain: int

    def quick(self) -> "Peer":
        return replace(self, drain=min(QUICK_DRAIN, self.drain // QUICK_SHARE))

    def at_most(self, drain: int) -> "Peer":
        return replace(self, drain=min(self.drain, drain))


@dataclass(frozen=True)
class Plan:
    jobs: tuple[Job, ...]
    peers: tuple[Peer, ...]


def read(file: Path = HERE / "peers.toml") -> Plan:
    table = tomllib.loads(file.read_text())
    peers = (Peer(**{**peer, "run": tuple(peer["run"])}) for peer in table["peer"])
    return Plan(tuple(Job(**job) for job in table["job"]), tuple(peers))


def chosen(plan: Plan, jobs: list[str], peers: list[str], drain: int | None, quick: bool) -> Plan:
    """The part of a plan that was asked for. An unknown name is an error; a job may also be named by its kind."""
    known = {job.name for job in plan.jobs} | {job.kind for job in plan.jobs}
    unknown = [name for name in jobs if name not in known]
    unknown += [name for name in peers if name not in {peer.name for peer in plan.peers}]
    if unknown:
        raise SystemExit(f"there is no {', no '.join(unknown)} in peers.toml")
    wanted = [job for job in plan.jobs if not jobs or job.name in jobs or job.kind in jobs]
    beside = [peer for peer in plan.peers if not peers or peer.name in peers]
    if drain is not None:
        beside = [peer.at_most(drain) for peer in beside]
    if quick:
        wanted, beside = [job.quick() for job in wanted], [peer.quick() for peer in beside]
    return Plan(tuple(wanted), tuple(beside))


def target() -> Path:
    """Where everything was built and installed."""
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()


def places() -> dict[str, str]:
    """What the words in braces in a peer's `run` become."""
    installed = target() / "peers"
    return {
        "node": str(installed / "node-bin"),
        "python": str(installed / "venv/bin/python"),
        "rust": str(installed / "release"),
        "peers": str(HERE),
    }
