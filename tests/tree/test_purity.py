"""A pure crate has no socket, file, clock, thread or dice.

Proof: it is `no_std`, so the compiler gives it none of these; it has no `unsafe` code, so it cannot reach past the
compiler; and each crate it depends on is pure itself or stands in the list below with what it was judged to be.
One of those, ring, has dice: its only generator is `SystemRandom`, and no value of a type can be made unnamed.
"""

import re
import unittest
from pathlib import Path

from metadata import ROOT, packages

# The pure crates of design section 3. A new one joins here, and nowhere else.
PURE = ["hoop-units", "hoop-timekeeper", "hoop-seal", "hoop-dispatch", "hoop-flow", "hoop-flow-table", "hoop-head", "hoop-netem"]

# What a pure crate may depend on, with the features that it may ask for. None of them, with these features, has a
# socket, file, clock or thread; ring's dice are looked for in the sources.
ALLOWED = {
    "base64": {"alloc"},
    "bytes": set(),
    "hashbrown": set(),
    "hex": {"alloc"},
    "http": set(),
    "ipnet": set(),
    "libm": set(),
    "rand_core": set(),
    "rand_pcg": set(),
    "ring": {"alloc"},
    "serde": {"alloc", "derive"},
    "thiserror": set(),
    "zeroize": {"alloc"},
}

# ring's default features are `alloc` and a way for its own dice to work on old Linux. Those of bytes and http are `std`, for maps with
# seeds of their own and for errors: they are types only.
DEFAULT_FEATURES_ALLOWED = {"bytes", "http", "libm", "ring"}

FORBIDDEN_WORDS = {
    "extern crate std": r"\bextern\s+crate\s+std\b",
    "unsafe": r"\bunsafe\b(?!_code)",
    "SystemRandom": r"\bSystemRandom\b",
}


def without_comments_and_strings(source):
    """Enough of Rust's grammar for this: line and block comments, raw and plain strings, characters."""
    pattern = r"""//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?'(?:\\[^']+|\\'|[^'\\])'"""
    return re.sub(pattern, " ", source, flags=re.S)


def without_tests(source):
    """Cuts off `#[cfg(test)] extern crate std;` and a module of tests; clippy sees to it that nothing follows one."""
    source = re.sub(r"#\[cfg\(test\)\]\s*extern\s+crate\s+std\s*;", "", source)
    return re.split(r"#\[cfg\(test\)\]\s*mod\s+\w+\s*\{", source)[0]


def offences(source):
    """The forbidden words in a pure crate's source."""
    code = without_tests(without_comments_and_strings(source))
    return [name for name, pattern in FORBIDDEN_WORDS.items() if re.search(pattern, code)]


def dependency_offence(dependency):
    """What is wrong with a dependency of a pure crate, or None."""
    name, features = dependency["name"], set(dependency["features"])
    if dependency["kind"] == "build":
        return f"{name} runs at build time"
    if dependency["kind"] == "dev" or name in PURE:
        return None
    if name not in ALLOWED:
        return f"{name} is not in the list of what a pure crate may depend on"
    if dependency["uses_default_features"] and name not in DEFAULT_FEATURES_ALLOWED:
        return f"{name} comes with its default features"
    more = features - ALLOWED[name]
    return f"{name} comes with the features {sorted(more)}" if more else None


class Purity(unittest.TestCase):
    def crates(self):
        """Each pure crate and its folder."""
        self.assertEqual([name for name in PURE if name not in packages()], [], "no such crates")
        found = [package for name in PURE for package in packages()[name] if package["source"] is None]
        return [(package, Path(package["manifest_path"]).parent) for package in found]

    def test_a_pure_crate_is_no_std(self):
        for package, folder in self.crates():
            with self.subTest(crate=package["name"]):
                code = without_comments_and_strings((folder / "src/lib.rs").read_text())
                self.assertRegex(code, r"(?m)^#!\[no_std\]$", "its lib.rs is not no_std")

    def test_a_pure_crate_reaches_for_neither_std_nor_unsafe_code_nor_dice(self):
        for _, folder in self.crates():
            for file in sorted((folder / "src").rglob("*.rs")):
                with self.subTest(file=str(file.relative_to(ROOT))):
                    self.assertEqual(offences(file.read_text()), [])

    def test_a_pure_crate_depends_on_what_is_pure_or_was_judged_alone(self):
        for package, _ in self.crates():
            with self.subTest(crate=package["name"]):
                self.assertEqual(list(filter(None, map(dependency_offence, package["dependencies"]))), [])

    def test_a_pure_crate_runs_nothing_when_it_is_built_and_keeps_its_sources_together(self):
        for package, folder in self.crates():
            kinds = {kind for target in package["targets"] for kind in target["kind"]}
            self.assertNotIn("custom-build", kinds, package["name"])
            for file in (folder / "src").rglob("*.rs"):
                self.assertNotRegex(without_comments_and_strings(file.read_text()), r"#\[path\b|\binclude!", str(file))

    def test_the_scan_names_each_offence_and_passes_over_comments_and_tests(self):
        for bad, word in [
            ("extern  crate std;", "extern crate std"),
            ("fn f() { unsafe { g() } }", "unsafe"),
            ("use ring::{rand::{self, SystemRandom as Dice}};", "SystemRandom"),
            ('let text = "//"; unsafe {}', "unsafe"),
            ("let quote = '\"'; unsafe {} let other = '\"';", "unsafe"),
            ("fn f<'a>(x: &'a str) { unsafe {} }", "unsafe"),
        ]:
            self.assertEqual(offences(bad), [word], bad)
        for good in [
            "//! unsafe SystemRandom\n/* extern crate std; */ #![deny(unsafe_code)]",
            'const TEXT: &str = "unsafe \\" SystemRandom";',
            "#[cfg(test)]\nextern crate std;",
            "fn f() {}\n#[cfg(test)]\nmod tests {\n    extern crate std;\n}",
        ]:
            self.assertEqual(offences(good), [], good)

    def test_a_dependency_that_could_do_anything_is_named(self):
        def dependency(name, features=(), kind=None, default=False):
            return {"name": name, "features": list(features), "kind": kind, "uses_default_features": default}

        for bad in [
            dependency("tokio"),
            dependency("hoop-http"),
            dependency("hex", ["std"]),
            dependency("hex", default=True),
            dependency("rand_core", ["os_rng"]),
            dependency("hoop-units", kind="build"),
        ]:
            self.assertIn(bad["name"], dependency_offence(bad) or "")
        for good in [dependency("hoop-units"), dependency("ring", default=True), dependency("proptest", kind="dev")]:
            self.assertIsNone(dependency_offence(good))


if __name__ == "__main__":
    unittest.main()
