"""The runner itself: nothing that went wrong may look as if it had passed."""

import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from tools import load

CARGO = """
test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
"""


class Runner(unittest.TestCase):
    def run_parts(self, **parts):
        """The last line printed, and the exit status, for parts given as (shell script, reader's name)."""
        lines, status = self.lines_of(**parts)
        return lines[-1], status

    def lines_of(self, **parts):
        runner = load("test")
        runner.PARTS = {
            name: (lambda script=script: ["sh", "-c", script], getattr(runner, reader))
            for name, (script, reader) in parts.items()
        }
        runner.ALL = list(parts)
        runner.ROOT = Path(self.enterContext(tempfile.TemporaryDirectory()))
        runner.LOGS = runner.ROOT / "logs"
        out = io.StringIO()
        with contextlib.redirect_stdout(out), mock.patch.object(sys, "argv", ["test"]):
            with self.assertRaises(SystemExit) as ended:
                runner.main()
        return out.getvalue().splitlines(), int(ended.exception.code)

    def test_it_ends_with_the_sum_of_all_parts(self):
        node = "echo '# pass 4'; echo '# fail 0'; echo '# cancelled 0'"
        python = "echo 'Ran 7 tests in 0.1s' >&2; echo 'OK (skipped=2)'"
        last = self.run_parts(a=("true", "check"), b=(node, "node_tests"), c=(python, "python_tests"))
        self.assertEqual(last, ("10 passed, 0 failed", 0))

    def test_each_failure_counts_and_the_other_parts_still_run(self):
        cargo = f"echo '{CARGO}'; exit 101"
        python = "echo 'Ran 7 tests in 0.1s'; echo 'FAILED (failures=1, errors=2)'; exit 1"
        last = self.run_parts(a=(cargo, "cargo_tests"), b=(python, "python_tests"), c=("true", "check"))
        self.assertEqual(last, ("20 passed, 5 failed", 1))

    def test_a_part_that_breaks_off_without_a_failed_test_is_a_failure(self):
        self.assertEqual(self.run_parts(a=("exit 101", "cargo_tests")), ("0 passed, 1 failed", 1))
        passed_first = "echo 'test result: ok. 5 passed; 0 failed;'; kill -9 $$"
        self.assertEqual(self.run_parts(a=(passed_first, "cargo_tests")), ("5 passed, 1 failed", 1))

    def test_what_failed_is_named_last(self):
        cargo = "echo 'test walk::far ... FAILED'; echo 'test result: FAILED. 3 passed; 1 failed;'; seq 100; exit 101"
        node = "printf '    not ok 2 - a page\\n      error: too slow\\n# pass 0\\n# fail 0\\n# cancelled 1\\n'; exit 1"
        lines, _ = self.lines_of(a=(cargo, "cargo_tests"), b=("false", "check"), c=(node, "node_tests"))
        named = ["a: test walk::far ... FAILED", "b: exit status 1", "c: not ok 2 - a page", "c: error: too slow"]
        self.assertEqual(lines[-5:], [*named, "3 passed, 3 failed"])

    def test_a_part_that_runs_no_test_is_a_failure(self):
        self.assertEqual(self.run_parts(a=("true", "node_tests")), ("0 passed, 1 failed", 1))

    def test_a_part_that_is_not_installed_is_a_failure(self):
        runner = load("test")
        with tempfile.TemporaryDirectory() as folder:
            broke = runner.execute(lambda: ["no-such-program-anywhere"], Path(folder) / "log")
        self.assertIn("is not installed", broke)


if __name__ == "__main__":
    unittest.main()
