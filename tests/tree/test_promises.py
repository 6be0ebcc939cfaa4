"""Every test that ARCHITECTURE.md names beside a promise, and docs/security.md beside an attack, is there: a test that was renamed or taken out leaves a promise without one."""

import re
import unittest

from metadata import ROOT

BROWSER = ROOT / "tests" / "browser"


def table():
    """The rows of the table, without its head."""
    lines = (ROOT / "ARCHITECTURE.md").read_text().split("| promise | tests |", 1)[1].splitlines()[2:]
    return [line for line in lines if line.startswith("|")]


class Promises(unittest.TestCase):
    def test_each_test_that_is_named_exists(self):
        sources = "\n".join(path.read_text() for folder in ("crates", "capi") for path in sorted((ROOT / folder).rglob("*.rs")))
        scripts = "\n".join(path.read_text() for path in sorted(BROWSER.glob("**/*.js")) if "node_modules" not in path.parts)
        tests = set(re.findall(r"fn (\w+)\(", sources))
        rows = table()
        self.assertGreater(len(rows), 12)
        for row in rows:
            with self.subTest(row[:60]):
                told = row.split("|")[2]
                named = re.findall(r"`([a-z0-9]+(?:_[a-z0-9]+){2,})`", told)
                quoted = re.findall(r'"([^"]+)"', told)
                self.assertTrue(named or quoted, "a promise without a test")
                self.assertEqual([name for name in named if name not in tests], [])
                self.assertEqual([name for name in quoted if name not in scripts], [])

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
