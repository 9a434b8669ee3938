"""What the driver promises: run by `python3 -m unittest` in bench/peers, and by the tests of the repository."""

import json
import sys
import unittest
from unittest import mock

from . import contender, page, plan, summary


def found(per_second: float) -> dict:
    return {"per_second": per_second}


class Summaries(unittest.TestCase):
    def test_a_ratio_is_taken_within_a_round(self) -> None:
        rounds = [{"postrider": found(10), "pgq": found(20)}, {"postrider": found(100), "pgq": found(50)}]
        of_pgq = summary.summary("drain", rounds)["pgq"]["per_second"]
        self.assertEqual(of_pgq["figure"], {"median": 35, "min": 20, "max": 50, "rounds": 2})
        self.assertEqual(of_pgq["postrider_to_it"], {"median": 1.25, "min": 0.5, "max": 2, "rounds": 2})

    def test_a_round_in_which_somebody_failed_counts_for_the_others(self) -> None:
        rounds = [{"postrider": found(10)}, {"postrider": found(10), "pgq": found(5)}]
        of_all = summary.summary("drain", rounds)
        self.assertEqual(of_all["postrider"]["per_second"]["figure"]["rounds"], 2)
        self.assertEqual(of_all["pgq"]["per_second"]["postrider_to_it"]["median"], 2)

    def test_figures_are_rounded_to_three_digits(self) -> None:
        self.assertEqual([page.figure(it) for it in (166_499.0, 999.9, 12.345, 0.0123)], ["166,000", "1,000", "12.3", "0.0123"])


class Programs(unittest.TestCase):
    """A program that says that messages are missing, or ends badly, must not become a figure."""

    def do(self, answer: dict, code: int = 0) -> dict:
        script = f"print('''{json.dumps(answer)}'''); raise SystemExit({code})"
        peer = plan.Peer("it", "", "it", "1", (sys.executable, "-c", script.replace("{", "{{").replace("}", "}}")), 1)
        server = mock.MagicMock()
        server.database.return_value.__enter__.return_value = "postgres://nowhere"
        return contender.Beside(peer).do(plan.Job("drain", "", "drain", "drain-delete"), server)

    def test_an_answer_is_taken_over(self) -> None:
        self.assertEqual(self.do({"ok": True, "per_second": 1}), {"it": {"ok": True, "per_second": 1}})

    def test_a_lost_message_is_a_failure(self) -> None:
        with self.assertRaisesRegex(contender.Failed, '"missing": 1'):
            self.do({"ok": False, "missing": 1})

    def test_a_program_that_fails_is_a_failure(self) -> None:
        with self.assertRaises(contender.Failed):
            self.do({"ok": True}, code=1)


class Plans(unittest.TestCase):
    def test_a_backlog_is_never_more_than_a_peer_can_take(self) -> None:
        whole = plan.read()
        for peer, cut in zip(whole.peers, plan.chosen(whole, [], [], 10_000, False).peers, strict=True):
            self.assertEqual(cut.drain, min(peer.drain, 10_000))

    def test_an_unknown_name_is_an_error(self) -> None:
        with self.assertRaises(SystemExit):
            plan.chosen(plan.read(), [], ["pgboss"], None, False)

    def test_jobs_are_chosen_by_name_or_kind(self) -> None:
        jobs = plan.chosen(plan.read(), ["enqueue", "drain"], [], None, True).jobs
        self.assertEqual([job.name for job in jobs], ["enqueue-1", "enqueue-8", "enqueue-32", "enqueue-100", "drain"])


if __name__ == "__main__":
    unittest.main()
