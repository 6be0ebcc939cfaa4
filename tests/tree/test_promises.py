"""Every test that tests/promises.txt names beside a promise is there, and so is every test that docs/security.md names beside an attack."""

import re
import unittest

from metadata import ROOT
from tools import load


class Promises(unittest.TestCase):
    def setUp(self):
        self.tool = load("promises")

    def test_each_promise_names_tests_that_exist_and_the_page_is_current(self):
        text, missing = self.tool.page(self.tool.promises(self.tool.LIST.read_text()))
        self.assertEqual(missing, [])
        self.assertEqual(self.tool.PAGE.read_text(), text, "docs/promises.md is not current: run tools/promises")

    def test_the_numbers_are_stable_and_complete(self):
        numbers = [number for number, _, _ in self.tool.promises(self.tool.LIST.read_text())]
        self.assertEqual(numbers, [f"P{number}" for number in range(1, len(numbers) + 1)])
        self.assertGreater(len(numbers), 12)

    def test_a_missing_test_is_named_with_its_closest_neighbour(self):
        _, missing = self.tool.page([("P1", "A promise.", [("seal", "no_flipped_bit_goes_unseen", None)])])
        self.assertEqual(missing, ["P1: seal has no test `no_flipped_bit_goes_unseen`; perhaps `no_flipped_bit_goes_unnoticed`?"])

    def test_a_list_with_a_mistake_is_refused(self):
        for text in ["    seal a_b_c\n", "P1 A promise.\n", "P1 A.\n    seal a_b\nP1 B.\n    seal c_d\n", "P1 A.\n  seal a_b\n"]:
            with self.subTest(text), self.assertRaises(self.tool.Problem):
                self.tool.promises(text)
        with self.assertRaises(self.tool.Problem):
            self.tool.page([("P1", "A promise.", [("no-such-crate", "a_b", None)])])

    def test_each_test_beside_an_attack_exists(self):
        sources = "\n".join(path.read_text() for folder in ("crates", "capi") for path in sorted((ROOT / folder).rglob("*.rs")))
        python = "\n".join(path.read_text() for path in sorted((ROOT / "tests").rglob("*.py")) if "node_modules" not in path.parts)
        known = {*re.findall(r"fn (\w+)\(", sources), *re.findall(r"def (\w+)\(", python), *re.findall(r"^mod (\w+);", sources, re.MULTILINE)}
        text = (ROOT / "docs/security.md").read_text()
        named = re.findall(r"`([a-z0-9]+(?:_[a-z0-9]+){3,})`", text.split("## What an attack found", 1)[1])
        self.assertGreater(len(named), 50)
        self.assertEqual([name for name in named if name not in known], [])

    def test_each_source_file_that_a_page_names_exists(self):
        pages = [ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("*.md"))]
        for page in pages:
            named = set(re.findall(r"`((?:crates/[\w-]+|capi|bench|web)/(?:src|tests)/[\w/-]+\.(?:rs|ts))`", page.read_text()))
            with self.subTest(page.name):
                self.assertEqual(sorted(name for name in named if not (ROOT / name).exists()), [])


if __name__ == "__main__":
    unittest.main()
