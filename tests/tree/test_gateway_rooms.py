"""The rooms of the gateway's crate: each imports only rooms below it, and no two of its files import each other, be it through others."""

import re
import unittest
from pathlib import PurePath

from metadata import ROOT

SOURCES = ROOT / "crates" / "gateway" / "src"

# From below: each may import those before its own line. Intake and delivery stand beside each other.
ROOMS = [{"core"}, {"peer"}, {"access"}, {"intake", "delivery"}, {"web"}]


def module(path):
    """The segments of a file's module: `web/monitor.rs` and `web/monitor/mod.rs` are both web::monitor."""
    parts = path.with_suffix("").parts
    return tuple(parts[:-1] if parts[-1] in ("mod", "lib") else parts)


def code(source):
    """A file's source without its tests, comments and strings. What stands indented in it and says `super` is a module within the file."""
    source = re.split(r"(?m)^#\[cfg\(test\)\]\s*\nmod \w+ \{", source)[0]
    source = re.sub(r'//[^\n]*|"(?:\\.|[^"\\])*"', "", source, flags=re.S)
    return re.sub(r"(?m)^[ ]+use super::[^;]+;", "", source)


def leaves(tree):
    """The paths of a `use`: `a::{b, c::{d, self}}` is a::b, a::c::d and a::c."""
    head, brace, rest = tree.strip().partition("{")
    if not brace:
        return [re.sub(r"(::self)?(\s+as\s+\w+)?$", "", head)]
    parts, depth = [""], 0
    for letter in rest.rstrip().removesuffix("}"):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [path for part in parts if part.strip() for path in leaves(head + part.strip())]


def imports(sources):
    """For each module, those of its crate that its code names. What a folder's own file takes from the files in it is its own affair."""
    found = {}
    for own, source in sources.items():
        named = [path for tree in re.findall(r"(?m)^(?:pub(?:\(\w+\))? )?use ([^;]+);", source) for path in leaves(tree)]
        named += re.findall(r"\b(?:crate|super)(?:::\w+)+", source)
        found[own] = set()
        for path in named:
            segments = [segment.strip() for segment in path.split("::")]
            base = list(own)
            if segments[0] == "crate":
                base, segments = [], segments[1:]
            while segments and segments[0] == "super":
                base, segments = base[:-1], segments[1:]
            whole = tuple(base + segments)
            found[own].add(next(whole[:end] for end in range(len(whole), -1, -1) if whole[:end] in sources))
        found[own] -= {own, ()}
    return found


def upward(edges):
    """The imports that go up, or to the room beside."""
    storey = {room: number for number, rooms in enumerate(ROOMS) for room in rooms}
    named = [(own, other) for own, others in edges.items() if own and own[0] in storey for other in others]
    return sorted(
        f"{'::'.join(own)} imports {'::'.join(other)}"
        for own, other in named
        if own[0] != other[0] and storey.get(other[0], len(ROOMS)) >= storey[own[0]]
    )


def circles(edges):
    """The modules that import themselves through others."""
    edges, gone = {own: set(others) for own, others in edges.items()}, True
    while gone:
        # Whoever imports nothing that is left, or is imported by nothing that is left, is in no circle.
        used = set().union(*edges.values()) if edges else set()
        gone = {own for own, others in edges.items() if not others or own not in used}
        edges = {own: others - gone for own, others in edges.items() if own not in gone}
    return sorted("::".join(own) for own in edges)


class Rooms(unittest.TestCase):
    def sources(self):
        files = sorted(SOURCES.rglob("*.rs"))
        self.assertGreater(len(files), 40)
        return {module(path.relative_to(SOURCES)): code(path.read_text()) for path in files}

    def test_no_room_imports_one_above_or_beside_it(self):
        self.assertEqual(upward(imports(self.sources())), [])

    def test_no_two_files_import_each_other(self):
        self.assertEqual(circles(imports(self.sources())), [])

    def test_the_scan_finds_what_goes_up_and_round(self):
        sources = {
            "core/state.rs": "use crate::web::{router, admin::{self, Page}};\n",
            "intake/a.rs": "//! crate::web\nuse super::b::B;\n",
            "intake/b.rs": "fn f() { crate::intake::a::g() }\n#[cfg(test)]\nmod tests {\n    use crate::delivery::c;\n}\n",
            "delivery/c.rs": "use crate::intake::a;\n",
            "web/router.rs": "",
            "web/admin.rs": "",
            "lib.rs": "",
        }
        edges = imports({module(PurePath(name)): code(source) for name, source in sources.items()})
        above = ["core::state imports web::admin", "core::state imports web::router", "delivery::c imports intake::a"]
        self.assertEqual(upward(edges), above)
        self.assertEqual(circles(edges), ["intake::a", "intake::b"])


if __name__ == "__main__":
    unittest.main()
