"""Every file of a crate's integration tests is a module of their binary: the compiler passes over a file that no line names."""

import re
import unittest

from metadata import ROOT

CRATES = ROOT / "crates"


def unnamed(main):
    """The files and folders beside a `main.rs` that it does not name."""
    named = set(re.findall(r"^mod (\w+);$", main.read_text(), re.M))
    beside = {path.stem for path in main.parent.iterdir() if path.suffix == ".rs" or (path / "mod.rs").exists()}
    return sorted(beside - named - {"main"})


class Modules(unittest.TestCase):
    def test_each_file_beside_a_main_of_tests_is_named_in_it(self):
        mains = sorted(CRATES.glob("*/tests/*/main.rs"))
        self.assertGreater(len(mains), 3)
        for main in mains:
            with self.subTest(main.relative_to(CRATES)):
                self.assertEqual(unnamed(main), [])


if __name__ == "__main__":
    unittest.main()
