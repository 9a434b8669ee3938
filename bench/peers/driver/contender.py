"""Those who are measured. Each does a job and answers figures, or why there are none."""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path

from .plan import Job, Peer, places, target
from .server import Server

# Slower than anything that ends by itself.
PATIENCE = 300


class Failed(Exception):
    """A job that did not end, or ended with messages lost, repeated or not settled."""


def _run(command: list[str]) -> str:
    """What a program prints. It and whatever it started end with us."""
    environment = {**os.environ, "PEERS_NODE": str(target() / "peers/node"), "RUST_BACKTRACE": "0"}
    pipe = subprocess.PIPE
    program = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment, start_new_session=True)
    try:
        printed, complained = program.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise Failed(f"it did not end in {PATIENCE} s") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.wait()
    if program.returncode:
        said = f"{printed.strip()}\n{complained.strip()}".strip().splitlines()
        raise Failed("\n".join(said[-8:]))
    return printed


class Beside:
    """A peer."""

    def __init__(self, peer: Peer) -> None:
        self.name, self.peer = peer.name, peer

    def do(self, job: Job, server: Server) -> dict[str, dict]:
        words = [word.format(**places()) for word in self.peer.run]
        options = {"--clients": job.clients, "--per-call": job.per_call, "--seconds": job.seconds, "--rate": job.rate}
        options["--messages"] = self.peer.drain
        with server.database() as url:
            flags = [str(word) for pair in options.items() for word in pair]
            answer = json.loads(_run([*words, job.kind, "--url", url, *flags]).splitlines()[-1])
        if not answer["ok"]:
            raise Failed(json.dumps(answer))
        return {self.name: answer}


class Postrider:
    """Postrider's own benchmark, which measures bare SQL as well."""

    name = "postrider"

    def __init__(self, binary: Path, quick: bool) -> None:
        self.binary, self.quick = binary, quick

    def do(self, job: Job, server: Server) -> dict[str, dict]:
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "report.json"
            command = [str(self.binary), "bench", "run", job.scenario, "--rounds", "1", "--json", str(file)]
            _run([*command, "--database-url", server.url, *(["--quick"] if self.quick else [])])
            report = json.loads(file.read_text())
        return of_report(report)


def of_report(report: dict) -> dict[str, dict]:
    """The figures of a report of `postrider bench` with one scenario and one round."""
    if report["schema"] != 1:
        raise Failed(f"the report has schema {report['schema']}, and this reads 1")
    scenario = report["databases"][0]["scenarios"][0]
    if scenario["broken"]:
        raise Failed("; ".join(scenario["broken"]))
    found = {}
    for side, name in (("ours", Postrider.name), ("bare", "bare SQL")):
        measured = scenario["rounds"][0].get(side)
        if measured is None:
            continue
        figures = {"ok": True, "messages": measured["messages"], "seconds": measured["seconds"]}
        figures["per_second"] = measured["messages"] / measured["seconds"]
        if measured.get("pick_up"):
            figures["latency_ms"] = {key: measured["pick_up"][key] for key in ("p50", "p99", "max")}
        keys = ("batch", "ack", "concurrency", "sink_batch") if side == "ours" else ("batch", "ack")
        settings = {key: scenario[key] for key in keys}
        found[name] = {**figures, "settings": {**settings, "build": report["build"]}}
    return found
