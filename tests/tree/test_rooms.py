"""The rooms of a crate: a crate whose `lib.rs` declares their order keeps it, and none of its files imports another in a circle.

A crate declares the order in its doc, after a line that ends with "from the bottom up": a list whose items begin with the names of rooms.
A room is a folder or a file beside `lib.rs`. What is re-exported counts for the file that defines it; tests do not count.
"""

import re
import unittest

from metadata import ROOT

DECLARES = re.compile(r"^//! .*from the bottom up.*$", re.M)
USE = re.compile(r"\b(?:pub(?:\([^)]*\))?\s+)?use\s+([^;]+);")
PATH = re.compile(r"(?<![\w:.])(?:crate|super|self|[a-z_]\w*)(?:::\w+)+")


def order(lib):
    """The rooms that a `lib.rs` declares, the lowest first."""
    found = DECLARES.search(lib)
    items = re.findall(r"^//! - (.*?):", lib[found.end() :], re.M) if found else []
    return [name for item in items for name in re.findall(r"`(\w+)`", item)]


def code(source):
    """A source without comments, strings and tests."""
    pattern = r"""//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?'(?:\\[^']+|\\'|[^'\\])'"""
    source = re.sub(pattern, " ", source, flags=re.S)
    while found := re.search(r"#\[cfg\(test\)\]\s*", source):
        rest = source[found.end() :]
        item = re.match(r"(?:pub(?:\([^)]*\))?\s+)?(?:mod\s+\w+\s*;|use\s+[^;]+;|const\s+[^;]+;)", rest)
        source = source[: found.start()] + (rest[item.end() :] if item else after_block(rest))
    return source


def after_block(source):
    """What follows the first block in braces."""
    depth = 0
    for at, letter in enumerate(source):
        depth += (letter == "{") - (letter == "}")
        if letter == "}" and depth == 0:
            return source[at + 1 :]
    return ""


def expand(tree):
    """The paths of a `use`, and the name that each is imported as."""
    before, brace, inner = tree.strip().partition("{")
    if not brace:
        path, _, alias = before.partition(" as ")
        parts = tuple(part.strip() for part in path.split("::"))
        parts = parts[:-1] if parts[-1] == "self" and len(parts) > 1 else parts
        return [(parts, alias.strip() or parts[-1])]
    depth, part, trees = 0, "", []
    for letter in inner.rstrip().removesuffix("}"):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            trees, part = [*trees, part], ""
        else:
            part += letter
    return [found for each in [*trees, part] if each.strip() for found in expand(before + each.strip())]


class Crate:
    """The modules of a crate, by path, with what each imports."""

    def __init__(self, folder):
        self.uses, self.bodies = {}, {}
        tests = self.tests(folder)
        for file in sorted(folder.rglob("*.rs")):
            module = self.module(file.relative_to(folder))
            if not any(module[: len(test)] == test for test in tests):
                source = code(file.read_text())
                self.uses[module] = [found for tree in USE.findall(source) for found in expand(tree)]
                self.bodies[module] = USE.sub(" ", source)

    @staticmethod
    def module(file):
        parts = file.with_suffix("").parts
        return parts[:-1] if parts[-1] in ("mod", "lib") else parts

    def tests(self, folder):
        """Files that are modules of tests alone."""
        found = []
        for file in folder.rglob("*.rs"):
            for name in re.findall(r"#\[cfg\(test\)\]\s*(?:pub )?mod (\w+);", file.read_text()):
                found.append((*self.module(file.relative_to(folder)), name))
        return found

    def absolute(self, module, path):
        if path[0] == "crate":
            return path[1:]
        if path[0] == "self":
            return (*module, *path[1:])
        while path and path[0] == "super":
            module, path = module[:-1], path[1:]
            if not path or path[0] != "super":
                return (*module, *path)
        return (*module, *path) if (*module, path[0]) in self.uses else None

    def defines(self, path, seen=()):
        """The module that defines what a path leads to."""
        at = len(path)
        while path[:at] not in self.uses:
            at -= 1
        module, rest = path[:at], path[at:]
        if not rest or path in seen:
            return module
        for imported, name in self.uses[module]:
            target = self.absolute(module, imported)
            if name == rest[0] and target is not None:
                return self.defines((*target, *rest[1:]), (*seen, path))
        return module

    def imports(self, module):
        """The other modules that define what a module uses."""
        local = {name: self.absolute(module, path) for path, name in self.uses[module]}
        body = self.bodies[module]
        used = [path for name, path in local.items() if path and path not in self.uses and re.search(rf"\b{name}\b", body)]
        for found in PATH.findall(body):
            first, *rest = found.split("::")
            start = local.get(first) or self.absolute(module, (first, *rest))
            if start is not None:
                used.append((*start, *rest) if first in local else start)
        return {self.defines(path) for path in used} - {module}


def circle(edges):
    """Modules that import each other in a circle, or none."""
    done, path = set(), []

    def walk(module):
        if module in path:
            return path[path.index(module) :]
        if module in done:
            return None
        path.append(module)
        found = next(filter(None, map(walk, sorted(edges[module]))), None)
        path.pop()
        done.add(module)
        return found

    return next(filter(None, map(walk, sorted(edges))), None)


class Rooms(unittest.TestCase):
    def crates(self):
        found = [lib.parent for lib in sorted((ROOT / "crates").glob("*/src/lib.rs")) if order(lib.read_text())]
        self.assertTrue(found, "no crate declares an order")
        return found

    def test_each_room_imports_only_rooms_below_it(self):
        for folder in self.crates():
            rooms, crate = order((folder / "lib.rs").read_text()), Crate(folder)
            with self.subTest(crate=folder.parent.name):
                self.assertEqual([room for room in rooms if (room,) not in crate.uses], [], "no such rooms")
                up = [
                    f"{'::'.join(module)} imports {'::'.join(other)}"
                    for module in crate.uses
                    for other in crate.imports(module)
                    if module and other and {module[0], other[0]} <= set(rooms) and rooms.index(module[0]) < rooms.index(other[0])
                ]
                self.assertEqual(up, [])

    def test_no_file_imports_another_in_a_circle(self):
        for folder in self.crates():
            crate = Crate(folder)
            edges = {module: crate.imports(module) for module in crate.uses}
            with self.subTest(crate=folder.parent.name):
                self.assertGreater(sum(map(len, edges.values())), len(edges))
                self.assertIsNone(circle(edges))

    def test_imports_are_read_as_the_compiler_does(self):
        self.assertEqual(expand("crate::a::{self, b::{C, D as E}}"), [(("crate", "a"), "a"), (("crate", "a", "b", "C"), "C"), (("crate", "a", "b", "D"), "E")])
        self.assertEqual(code('use a::b; // c\n#[cfg(test)]\nmod tests {\n fn f() { "}"; }\n}').split(), ["use", "a::b;"])
        self.assertEqual(circle({("a",): {("b",)}, ("b",): {("c",)}, ("c",): {("b",)}}), [("b",), ("c",)])
        self.assertIsNone(circle({("a",): {("b",), ("c",)}, ("b",): {("c",)}, ("c",): set()}))


if __name__ == "__main__":
    unittest.main()
