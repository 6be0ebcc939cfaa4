"""The book of the docs (tools/book) has each page of docs/, and no link in it leads to a file that is not there."""

import tempfile
import unittest
from pathlib import Path

from metadata import ROOT
from tools import load


class Book(unittest.TestCase):
    def setUp(self):
        self.tool = load("book")

    def test_the_summary_lists_each_page_of_docs_once(self):
        pages = self.tool.pages()
        self.assertEqual(len(pages), len(set(pages)))
        docs = {path.relative_to(ROOT) for path in (ROOT / "docs").glob("*.md")} - {Path("docs/SUMMARY.md")}
        self.assertEqual(docs - set(pages), set())

    def test_links_of_pages_lead_to_files_that_are_there(self):
        dead = []
        for page in self.tool.pages():
            for _, _, link in self.tool.LINK.findall((ROOT / page).read_text()):
                aim = self.tool.target(ROOT / page, link)
                if aim and not (ROOT / aim).exists():
                    dead.append(f"{page}: {link}")
        self.assertEqual(dead, [])

    def test_a_link_that_leaves_the_book_is_its_text(self):
        kept = {Path("docs/push.md")}
        text = self.tool.in_book(ROOT / "docs/run.md", "[a](push.md#b) [`c`](../crates/d.rs) [e](https://f.example/) [g](#h)", kept)
        self.assertEqual(text, "[a](push.md#b) `c` [e](https://f.example/) [g](#h)")

    def test_pages_and_pictures_lie_as_in_the_repository(self):
        with tempfile.TemporaryDirectory() as folder:
            self.tool.lay_out(Path(folder))
            self.assertIn("(docs/push.md)", (Path(folder) / "SUMMARY.md").read_text())
            self.assertTrue((Path(folder) / "docs/figures/intake.svg").exists())


if __name__ == "__main__":
    unittest.main()
