"""What the tree takes in from elsewhere: licences, sources, and providers of cryptography, as deny.toml has them."""

import json
import re
import tomllib
import unittest

from metadata import ROOT, output, packages

# These say so in a form that npm no longer knows.
LICENCE_READ_BY_HAND = {"node_modules/combine-errors": "MIT", "node_modules/busboy": "MIT", "node_modules/streamsearch": "MIT"}

# What is only used to test or build, and goes to nobody, may be under these besides.
LICENCES_OF_TOOLS = {"0BSD", "BSD-2-Clause"}

DENY = tomllib.loads((ROOT / "deny.toml").read_text())


def allowed(expression, licences):
    """Whether an SPDX licence expression can be met with `licences` alone."""
    tokens = re.findall(r"[()]|[\w.+-]+", expression.replace("/", " OR "))

    def either():
        met = both()
        while tokens and tokens[0] == "OR":
            tokens.pop(0)
            met = both() or met
        return met

    def both():
        met = one()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            met = one() and met
        return met

    def one():
        token = tokens.pop(0)
        if token == "(":
            met = either()
            if tokens.pop(0) != ")":
                raise ValueError(expression)
            return met
        if tokens and tokens[0] == "WITH":
            token = f"{token} WITH {tokens.pop(1)}"
            tokens.pop(0)
        return token in licences

    met = either()
    if tokens:
        raise ValueError(expression)
    return met


def tracked(pattern):
    """The names of files that are tracked, or new and not ignored."""
    listed = output("git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard", "--", pattern)
    return sorted(set(listed.splitlines()))


class Dependencies(unittest.TestCase):
    def foreign(self):
        found = [package for group in packages().values() for package in group if package["source"] is not None]
        self.assertGreater(len(found), 10)
        return found

    def test_each_dependency_has_a_licence_that_is_allowed(self):
        licences = set(DENY["licenses"]["allow"])
        for package in self.foreign():
            with self.subTest(package=package["name"]):
                self.assertIsNotNone(package["license"], "it names no licence")
                self.assertTrue(allowed(package["license"], licences), package["license"])

    def test_a_licence_expression_is_read_as_spdx_has_it(self):
        for expression, met in [
            ("MIT", True),
            ("GPL-3.0-only", False),
            ("MIT OR GPL-3.0-only", True),
            ("GPL-3.0-only/MIT", True),
            ("MIT AND GPL-3.0-only", False),
            ("(MIT OR GPL-3.0-only) AND ISC", True),
            ("GPL-3.0-only OR MIT AND ISC", True),
            ("Apache-2.0 WITH LLVM-exception", False),
        ]:
            self.assertEqual(allowed(expression, {"MIT", "ISC", "Apache-2.0"}), met, expression)
        with self.assertRaises(ValueError):
            allowed("MIT MIT", {"MIT"})

    def test_every_dependency_comes_from_the_registry(self):
        for package in self.foreign():
            with self.subTest(package=package["name"]):
                self.assertTrue(package["source"].startswith("registry+"), package["source"])

    def test_ring_is_the_one_provider_of_cryptography(self):
        banned = {entry["crate"] for entry in DENY["bans"]["deny"]}
        self.assertIn("openssl", banned)
        self.assertEqual(banned & set(re.findall(r'(?m)^name = "(.+)"$', (ROOT / "Cargo.lock").read_text())), set())

    def test_each_node_package_is_pinned_by_hash_has_an_allowed_licence_and_names_no_registry(self):
        locks = [ROOT / name for name in tracked("*package-lock.json")]
        self.assertGreater(len(locks), 3)
        licences = set(DENY["licenses"]["allow"])
        for lock in locks:
            packages = json.loads(lock.read_text())["packages"]
            for name, package in packages.items():
                if name == "":
                    continue
                with self.subTest(lock=str(lock.relative_to(ROOT)), package=name):
                    self.assertRegex(package["integrity"], "^sha512-")
                    self.assertNotIn("resolved", package)
                    self.assertRegex(package.get("integrity", ""), r"^sha512-")
                    licence = package.get("license") or LICENCE_READ_BY_HAND[name]
                    tools = LICENCES_OF_TOOLS if package.get("dev") else set()
                    self.assertTrue(allowed(licence, licences | tools), licence)

    def test_every_python_package_is_pinned_by_hash(self):
        lines = (ROOT / "tools/requirements.txt").read_text().replace("\\\n", " ").splitlines()
        pins = [line for line in lines if line.strip() and not line.strip().startswith("#")]
        self.assertTrue(pins)
        for line in pins:
            self.assertRegex(line, r"^[\w.-]+==\S+ .*--hash=sha256:[0-9a-f]{64}")


if __name__ == "__main__":
    unittest.main()
