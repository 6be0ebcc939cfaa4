"""`tools/sbom` names all that the program is built from, and nothing else."""

import json
import subprocess
import unittest

from metadata import ROOT


class Sbom(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.told = json.loads(subprocess.run([ROOT / "tools/sbom"], check=True, capture_output=True, text=True).stdout)
        cls.parts = {part["bom-ref"]: part for part in cls.told["components"]}

    def test_it_is_of_the_program(self):
        self.assertEqual((self.told["bomFormat"], self.told["specVersion"]), ("CycloneDX", "1.5"))
        self.assertEqual(self.told["metadata"]["component"]["name"], "hoop")

    def test_each_part_is_there_once_with_its_licence_and_what_comes_from_elsewhere_with_its_checksum(self):
        self.assertEqual(len(self.parts), len(self.told["components"]))
        for part in self.told["components"]:
            self.assertIn("licenses", part, part["name"])
            if not part["name"].startswith("hoop"):
                self.assertRegex(part["hashes"][0]["content"], "^[0-9a-f]{64}$", part["name"])

    def test_what_a_part_needs_is_there(self):
        known = {*self.parts, self.told["metadata"]["component"]["bom-ref"]}
        for part in self.told["dependencies"]:
            self.assertLessEqual({part["ref"], *part["dependsOn"]}, known)

    def test_what_is_built_in_is_named_and_what_only_tests_need_is_not(self):
        names = {part["name"] for part in self.told["components"]}
        self.assertLessEqual({"hoop-seal", "ring", "rustls", "libsqlite3-sys"}, names)
        self.assertFalse({"tempfile", "proptest"} & names)


if __name__ == "__main__":
    unittest.main()
