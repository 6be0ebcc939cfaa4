"""`fuzz/` is a workspace of its own, with a lock file of its own: what our crates stand on is the same in both."""

import tomllib
import unittest

from metadata import ROOT


def ours(lock):
    """Our packages in a lock file, each with the names of what it depends on, without tests' own."""
    packages = tomllib.loads((ROOT / lock).read_text())["package"]
    return {p["name"]: {name.split()[0] for name in p.get("dependencies", [])} for p in packages if "source" not in p}


class FuzzLock(unittest.TestCase):
    def test_the_driver_builds_from_what_is_locked(self):
        # Cargo writes down what tests need for members of a workspace only, so the driver's list is a part of the other; what it lacks of a
        # crate's own manifest makes `cargo build --locked` refuse it.
        known, locked = ours("Cargo.lock"), ours("fuzz/Cargo.lock")
        for name, needs in locked.items():
            if name not in known:
                continue
            self.assertLessEqual(needs, known[name], f"{name} in fuzz/Cargo.lock needs what it no longer does")
            manifest = tomllib.loads((ROOT / "crates" / name.removeprefix("hoop-") / "Cargo.toml").read_text())
            tables = [manifest, *manifest.get("target", {}).values()]
            wanted = [entry for table in tables for entry in table.get("dependencies", {}).items()]
            lacking = {to for to, how in wanted if not (isinstance(how, dict) and how.get("optional"))} - needs
            self.assertFalse(lacking, f"{name}: `cargo metadata` in fuzz/ brings its lock file up to date")


if __name__ == "__main__":
    unittest.main()
