"""Inside a crate, files import each other in one direction: no circle, and where the root file's doc names an order of rooms, nothing upwards.

    python3 tests/tree/test_layers.py                     every crate of the workspace
    python3 tests/tree/test_layers.py crates/client       this one: its circles and upward imports, each with the names that make it

The graph is read from the sources' text. A file imports another if it names an item that the other defines, however the path goes there: through
`use`, a group, a glob, `super::`, or a re-export. A `mod` line is no import, and nor is a re-export by itself. Tests do not count: what stands under
`#[cfg(test)]`, and files that only such a `mod` line names. Methods are not seen, since no path leads to them.

A crate declares its rooms in one line of its root file's doc:

    //! Rooms, each importing only those before it: `core`, `peer`, `intake` | `delivery`, `web`.

Of rooms with `|` between them neither imports the other. Each module that the root declares is then named in the line. The root itself lies above them all.
"""

import re
import sys
import tomllib
import unittest
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

ROOMS = re.compile(r"Rooms, each importing only those before it: ((?:`\w+`(?:, | and | \| |,? ?)?)+)")

TOKEN = re.compile(
    r"""
    (?P<skip>\s+|//[^\n]*)
    |(?P<block>/\*)
    |(?P<string>[bc]?r(?P<hashes>\#*)".*?"(?P=hashes)|[bc]?"(?:\\.|[^"\\])*")
    |(?P<character>b?'(?:\\(?:u\{[^}]*\}|x..|.)|[^'\\])')
    |(?P<lifetime>'\w+)
    |(?P<word>\$crate\b|(?:r\#)?[A-Za-z_]\w*)
    |(?P<number>\d[\w]*)
    |(?P<mark>::|->|=>|.)
    """,
    re.S | re.X,
)
CLOSING = {"(": ")", "[": "]", "{": "}"}
ITEMS = {"fn", "struct", "enum", "union", "trait", "type", "static", "const"}
MODIFIERS = {"unsafe", "async", "default", "extern", "const", "auto"}


@dataclass
class Token:
    text: str
    kind: str
    line: int


@dataclass
class Use:
    """One name that a `use` brings in, or all of a module's names for a glob."""

    path: tuple
    name: str
    public: bool
    line: int


@dataclass
class Module:
    file: Path
    parent: "Module | None" = None
    children: dict = field(default_factory=dict)
    items: set = field(default_factory=set)
    uses: list = field(default_factory=list)
    paths: list = field(default_factory=list)

    def root(self):
        return self if self.parent is None else self.parent.root()

    def all(self):
        yield self
        for child in self.children.values():
            yield from child.all()


def tokens(source):
    """The source without comments, whose strings stay one token each."""
    found, position, line = [], 0, 1
    while position < len(source):
        match = TOKEN.match(source, position)
        end = match.end()
        if match.lastgroup == "block":
            end, depth = match.end(), 1
            while depth and end < len(source):
                mark = re.compile(r"/\*|\*/").search(source, end)
                depth, end = (depth + (1 if mark.group() == "/*" else -1), mark.end()) if mark else (0, len(source))
        elif match.lastgroup not in ("skip", "lifetime"):
            kind = next(name for name in ("string", "character", "word", "number", "mark") if match.group(name))
            found.append(Token(match.group().removeprefix("r#"), kind, line))
        line += source.count("\n", position, end)
        position = end
    return found


def closing(found, at):
    """The place of the bracket that closes the one at `at`."""
    depth = 0
    for place in range(at, len(found)):
        if found[place].kind == "mark":
            depth += (found[place].text in CLOSING) - (found[place].text in CLOSING.values())
            if depth == 0:
                return place
    return len(found) - 1


def tests_only(attribute):
    """Whether an attribute, in words without strings, keeps its item for tests."""
    return bool(re.match(r"cfg \( (test|all \( test\b)", attribute))


class Reader:
    """Reads one crate's root file and every file that its `mod` lines lead to."""

    def __init__(self, root):
        self.macros = {}
        self.root = self.file(root, None, root.parent)

    def file(self, path, parent, folder):
        module = Module(path, parent)
        self.module_body(module, tokens(path.read_text()), folder)
        return module

    def module_body(self, module, found, folder):
        at = 0
        while at < len(found):
            at = self.item(module, found, at, folder)

    def item(self, module, found, at, folder):
        """Reads the item at `at`; the place after it."""
        attributes, public = [], False
        while at < len(found):
            if found[at].text == "#":
                start = at + 2 if found[at + 1].text == "!" else at + 1
                end = closing(found, start)
                attributes.append(found[start + 1 : end])
                self.strings_of(module, found[start + 1 : end])
                at = end + 1
            elif found[at].text == "pub":
                public, at = True, at + 1
                if found[at].text == "(":
                    at = closing(found, at) + 1
            else:
                break
        words = [" ".join(token.text for token in attribute) for attribute in attributes]
        if at >= len(found):
            return at
        end = item_end(found, at)
        if any(map(tests_only, words)):
            return end
        start, text = at, found[at].text
        if text == "mod" and found[at + 1].kind == "word":
            self.child(module, found[at + 1 : end], folder, attributes)
        elif text == "use":
            self.use(module, found[at + 1 : end - 1], (), public)
        elif text == "extern" and found[at + 1].text == "crate":
            pass
        elif text == "macro_rules":
            module.items.add(found[at + 2].text)
            self.macros[found[at + 2].text] = module.file
            self.items_of_macro(module, found[at + 3 : end])
            self.body(module, found[at + 3 : end])
        else:
            while found[at].text in MODIFIERS and found[at + 1].text in ITEMS | MODIFIERS or found[at].kind == "string":
                at += 1
            if found[at].text in ITEMS:
                name = at + 1
                while found[name].text == "mut":
                    name += 1
                module.items.add(found[name].text)
                start = name + 1
            self.body(module, found[start:end])
        return end

    def items_of_macro(self, module, found):
        """A macro that defines a type by a plain name is called in its own module."""
        for before, word, name in zip(found, found[1:], found[2:]):
            if before.text == "pub" and word.text in ("struct", "enum", "trait") and name.kind == "word":
                module.items.add(name.text)

    def child(self, module, rest, folder, attributes):
        name = rest[0].text
        if rest[1].text == "{":
            child = module.children.setdefault(name, Module(module.file, module))
            self.module_body(child, rest[2:-1], folder / name)
            return
        path = next((attribute[2].text[1:-1] for attribute in attributes if attribute[0].text == "path"), None)
        named = [module.file.parent / path] if path else [folder / f"{name}.rs", folder / name / "mod.rs"]
        file = next((file for file in named if file.exists()), None)
        if file is not None:
            beneath = file.parent if file.name == "mod.rs" or path else folder / name
            module.children[name] = self.file(file, module, beneath)

    def use(self, module, found, before, public):
        """Reads a `use` tree: `a::{b, c as d, e::*}`."""
        at, path = 0, list(before)
        while at < len(found):
            token = found[at]
            if token.text == "{":
                inner, start = closing(found, at), at + 1
                for place in range(at + 1, inner + 1):
                    if place == inner or (found[place].text == "," and depth_between(found, start, place) == 0):
                        if place > start:
                            self.use(module, found[start:place], tuple(path), public)
                        start = place + 1
                return
            if token.text == "as":
                self.used(module, path, found[at + 1].text, public, token.line)
                return
            if token.text == "::" and at == 0 and not before:
                return
            if token.text != "::":
                path.append(token.text)
            at += 1
        if path:
            self.used(module, path, None, public, found[0].line)

    def used(self, module, path, name, public, line):
        if path[-1] == "self" and len(path) > 1:
            path = path[:-1]
        module.uses.append(Use(tuple(path), name or path[-1], public, line))

    def strings_of(self, module, attribute):
        """serde's `with = "path"` and `default = "path"` are paths, too."""
        if attribute and attribute[0].text == "serde":
            for token in attribute:
                if token.kind == "string" and re.fullmatch(r'"\w+(::\w+)*"', token.text):
                    module.paths.append((tuple(token.text[1:-1].split("::")), token.line))

    def body(self, module, found):
        """Takes the paths out of an item's body, and what a function imports for itself."""
        at = 0
        while at < len(found):
            token = found[at]
            if token.text == "#" and at + 1 < len(found) and found[at + 1].text in ("[", "!"):
                start = at + 2 if found[at + 1].text == "!" else at + 1
                if start >= len(found) or found[start].text != "[":
                    at += 1
                    continue
                end = closing(found, start)
                attribute = found[start + 1 : end]
                self.strings_of(module, attribute)
                at = end + 1
                if tests_only(" ".join(token.text for token in attribute)):
                    at = member_end(found, at)
            elif token.text == "pub" and at + 1 < len(found) and found[at + 1].text == "(":
                at = closing(found, at + 1) + 1
            elif token.text == "use" and token.kind == "word" and (at == 0 or found[at - 1].text in ("{", "}", ";")):
                end = next((place for place in range(at, len(found)) if found[place].text == ";"), len(found))
                self.use(module, found[at + 1 : end], (), False)
                at = end + 1
            elif token.kind == "word" and (at == 0 or found[at - 1].text not in (".", "::")):
                path, line = [token.text], token.line
                while at + 2 < len(found) and found[at + 1].text == "::" and found[at + 2].kind == "word":
                    path.append(found[at + 2].text)
                    at += 2
                module.paths.append((tuple(path), line))
                at += 1
            else:
                at += 1


def depth_between(found, start, end):
    marks = [token.text for token in found[start:end] if token.kind == "mark"]
    return sum((mark in CLOSING) - (mark in CLOSING.values()) for mark in marks)


def item_end(found, at):
    """The place after the item that begins at `at`: behind its `;`, or its body's bracket."""
    until_semicolon = found[at].text in ("use", "static", "type", "let") or (
        found[at].text == "const" and not {"fn", "unsafe", "async", "extern"} & {found[min(at + 1, len(found) - 1)].text}
    )
    place = at
    while place < len(found):
        text = found[place].text if found[place].kind == "mark" else ""
        if text == ";":
            return place + 1
        if text in CLOSING:
            place = closing(found, place)
            if text == "{" and not until_semicolon:
                return place + 1
        elif text in CLOSING.values():
            return place
        place += 1
    return place


def member_end(found, at):
    """The place after the member, statement or field that begins at `at`, within a body."""
    while at < len(found) and (found[at].text in ("pub", "#") or found[at].text == "["):
        at = closing(found, at) + 1 if found[at].text == "[" else at + 1
        if at < len(found) and found[at - 1].text == "pub" and found[at].text == "(":
            at = closing(found, at) + 1
    if at < len(found) and found[at].text in ITEMS | MODIFIERS | {"impl", "use", "let", "mod"}:
        return item_end(found, at)
    while at < len(found):
        text = found[at].text if found[at].kind == "mark" else ""
        if text in CLOSING:
            at = closing(found, at)
            if text == "{":
                return at + 1
        elif text in CLOSING.values():
            return at
        elif text in (",", ";"):
            return at + 1
        at += 1
    return at


def named_in(module, name, seen):
    """What a name stands for in a module: other modules, and files that define an item of this name."""
    if (id(module), name) in seen:
        return set(), set()
    seen = seen | {(id(module), name)}
    modules, files = set(), set()
    if name in module.children:
        modules.add(id(module.children[name]))
        KNOWN[id(module.children[name])] = module.children[name]
    if name in module.items:
        files.add(module.file)
    for use in module.uses:
        if use.name == name and use.path[-1] != "*":
            more = led_to(module, use.path, seen)
            modules, files = modules | more[0], files | more[1]
    if not modules and not files:
        for use in module.uses:
            if use.path[-1] == "*":
                for other in led_to(module, use.path[:-1], seen)[0]:
                    more = named_in(KNOWN[other], name, seen)
                    modules, files = modules | more[0], files | more[1]
    return modules, files


# Modules by their identity: dataclasses that change have no hash.
KNOWN = {}


def led_to(module, path, seen=frozenset()):
    """Where a path leads that stands in a module: to modules, and to files that define the item."""
    first, rest = path[0], list(path[1:])
    here = {"crate": module.root(), "$crate": module.root(), "self": module, "super": module.parent}.get(first)
    if here is not None:
        while rest and rest[0] == "super" and here is not None:
            here, rest = here.parent, rest[1:]
        if here is None:
            return set(), set()
        KNOWN[id(here)] = here
        modules, files = {id(here)}, set()
    else:
        modules, files = named_in(module, first, seen)
    for name in rest:
        inner, items = set(), set()
        for other in modules:
            more = named_in(KNOWN[other], name, seen)
            inner, items = inner | more[0], items | more[1]
        modules, files = inner, files | items
    return modules, files


def graph(root):
    """Each file's imports: `{file: {imported file: {"name, line 7"}}}`."""
    reader = Reader(root)
    edges = {}
    for module in reader.root.all():
        imports = edges.setdefault(module.file, {})

        def found(path, line):
            macro = {reader.macros[path[0]]} if path[0] in reader.macros else set()
            for file in (led_to(module, path)[1] | macro) - {module.file}:
                imports.setdefault(file, {}).setdefault("::".join(path), line)

        for use in module.uses:
            if not use.public and use.path[-1] != "*":
                found(use.path, use.line)
        for path, line in module.paths:
            found(path, line)
    return edges


def circles(edges):
    """The strongly connected components of more than one file (Tarjan)."""
    index, low, stack, result = {}, {}, [], []

    def visit(file):
        index[file] = low[file] = len(index)
        stack.append(file)
        for other in edges.get(file, ()):
            if other not in index:
                visit(other)
                low[file] = min(low[file], low[other])
            elif other in stack:
                low[file] = min(low[file], index[other])
        if low[file] == index[file]:
            component = []
            while not component or component[-1] != file:
                component.append(stack.pop())
            if len(component) > 1:
                result.append(sorted(component))

    for file in sorted(edges):
        if file not in index:
            visit(file)
    return sorted(result)


def declared_rooms(root):
    """The order that a root file's doc declares: the rank of each room, lowest first, or nothing."""
    doc = " ".join(re.findall(r"^//! ?(.*)$", root.read_text(), re.M))
    match = ROOMS.search(doc)
    found = re.findall(r"(\| )?`(\w+)`", match.group(1)) if match else []
    ranks = {}
    for beside, room in found:
        ranks[room] = max(ranks.values(), default=-1) + (not beside)
    return ranks


def room_of(file, root):
    """The part of the crate that a file belongs to: the folder or file right beside the root, or "" for the root."""
    if file == root:
        return ""
    return file.relative_to(root.parent).parts[0].removesuffix(".rs")


def tell(source, target, names, folder):
    first = sorted(names.items(), key=lambda name: name[1])
    shown = ", ".join(f"{name} (line {line})" for name, line in first[:4]) + (" …" if len(first) > 4 else "")
    return f"    {source.relative_to(folder)} -> {target.relative_to(folder)}: {shown}"


def faults(crate):
    """What is wrong with a crate's imports, in lines to read."""
    folder, lines = crate / "src", []
    roots = [folder / "lib.rs", folder / "main.rs", *sorted(folder.glob("bin/*.rs")), *sorted(folder.glob("bin/*/main.rs"))]
    for root in filter(Path.exists, roots):
        edges = graph(root)
        for circle in circles(edges):
            lines.append(f"a circle of {len(circle)} files: {', '.join(str(file.relative_to(folder)) for file in circle)}")
            inside = [(a, b, edges[a][b]) for a in circle for b in sorted(edges[a]) if b in circle]
            lines += [tell(*edge, folder) for edge in inside]
        rooms = declared_rooms(root)
        if not rooms:
            continue
        rank = rooms | {"": len(rooms)}
        strangers = sorted({room_of(file, root) for file in edges} ^ set(rank))
        if strangers:
            lines.append(f"{root.relative_to(folder)} declares rooms; of these modules only one of doc and folder knows: {', '.join(strangers)}")
        for source in sorted(edges):
            for target in sorted(edges[source]):
                own, other = room_of(source, root), room_of(target, root)
                below, above = rank.get(own), rank.get(other)
                if below is not None and above is not None and own != other and above >= below:
                    lines.append("an upward import:" if above > below else "an import of the room beside it:")
                    lines.append(tell(source, target, edges[source][target], folder))
    return lines


def workspace():
    """The folder that holds the workspace's manifest, above this file, and its crates."""
    for folder in Path(__file__).resolve().parents:
        manifest = folder / "Cargo.toml"
        if manifest.exists():
            members = tomllib.loads(manifest.read_text())["workspace"]["members"]
            return folder, sorted(path for member in members for path in folder.glob(member) if (path / "Cargo.toml").exists())
    return None, []


class Layers(unittest.TestCase):
    def test_no_crate_has_a_circle_or_an_upward_import(self):
        root, crates = workspace()
        self.assertGreater(len(crates), 10)
        for crate in crates:
            with self.subTest(str(crate.relative_to(root))):
                lines = faults(crate)
                self.assertEqual(lines, [], "\n" + "\n".join(lines))


class Scan(unittest.TestCase):
    """The scan itself, on small trees."""

    def faults(self, **files):
        with TemporaryDirectory() as folder:
            for name, text in files.items():
                path = Path(folder, "src", *name.split("__")).with_suffix(".rs")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return faults(Path(folder))

    def circles(self, **files):
        return [line for line in self.faults(**files) if "circle" in line]

    def test_a_circle_is_found_with_the_names_that_make_it(self):
        found = self.faults(
            lib="mod a; mod b; mod c;",
            a="use crate::b::B; pub struct A(B);",
            b="use crate::c; pub struct B(c::C);",
            c="pub struct C; impl C { fn f() -> super::a::A { todo!() } }",
        )
        self.assertEqual(found[0], "a circle of 3 files: a.rs, b.rs, c.rs")
        self.assertIn("    c.rs -> a.rs: super::a::A (line 1)", found)
        self.assertEqual(len(found), 4)

    def test_what_goes_one_way_is_no_circle(self):
        for b in ["use crate::a::A;", "", "fn f() { crate::a::f() }"]:
            self.assertEqual(self.faults(lib="mod a; mod b; pub use a::A;", a="pub struct A; pub fn f() {}", b=b), [])

    def test_a_path_is_followed_however_it_is_written(self):
        for b in [
            "use crate::{x::X, a::{self, A}};",
            "use crate::a; fn f() -> a::A { a::A }",
            "use super::{a as other}; fn f() { other::f() }",
            "use crate::a::*; fn f(a: A) {}",
            "fn f() { use crate::a::f as g; g() }",
            "use crate::A;",
            "use crate::Renamed as Again;",
            "fn f() { macro_of_a!() }",
            '#[serde(default = "crate::a::f")] struct S;',
            "macro_rules! m { () => { $crate::a::f() } }",
            "mod inner { use super::super::a::A; }",
            "const X: [u8; 2] = [1; 2]; pub const Y: u8 = { crate::a::F };",
        ]:
            found = self.circles(
                lib="#[macro_use] mod a; mod b; mod x; pub use a::{A, A as Renamed};",
                a="use crate::b::B; pub struct A; pub fn f() {} pub const F: u8 = 1; macro_rules! macro_of_a { () => {} }",
                b=f"pub struct B; {b}",
                x="pub struct X;",
            )
            self.assertEqual(found, ["a circle of 2 files: a.rs, b.rs"], b)

    def test_tests_comments_strings_and_mod_lines_are_passed_over(self):
        for b in [
            "#[cfg(test)] mod tests { use crate::a::A; }",
            "#[cfg(test)] use crate::a::A;",
            "#[cfg(all(test, unix))] fn f() { crate::a::f() }",
            "impl B { #[cfg(test)] pub(crate) fn f<X, Y>(x: X) -> crate::a::A { crate::a::f() } }",
            "struct S { #[cfg(test)] a: crate::a::A, b: u8 }",
            "// use crate::a::A;\n/* use crate::a::A; /* */ crate::a::f() */",
            'const TEXT: &str = "use crate::a::A;"; const RAW: &str = r#"crate::a::f()"#;',
            "fn f(quote: char) { if quote == '\"' { other() } }",
            "pub(in crate::a) fn f() {}",
        ]:
            found = self.circles(lib="mod a; mod b;", a="use crate::b::B; pub struct A; pub fn f() {}", b=f"pub struct B; {b}")
            self.assertEqual(found, [], b)

    def test_a_file_that_only_tests_name_does_not_count(self):
        found = self.circles(lib="mod a;", a="pub struct A; #[cfg(test)] mod tests;", a__tests="use super::A; pub struct T;")
        self.assertEqual(found, [])

    def test_a_parent_may_re_export_what_its_child_builds_on_it(self):
        tree = {"lib": "mod a;", "a__child": "use super::A; pub struct Child(A);"}
        self.assertEqual(self.circles(a__mod="mod child; pub use child::Child; pub struct A;", **tree), [])
        self.assertEqual(len(self.circles(a__mod="mod child; pub use child::Child; pub struct A; fn f(c: Child) {}", **tree)), 1)

    def test_an_upward_import_is_found(self):
        tree = {"low__mod": "mod file;", "high__mod": "pub struct High;"}
        doc = "//! Rooms, each importing only those before it: `low`,\n//! `high`.\nmod low; mod high;"
        self.assertEqual(self.faults(lib=doc, low__file="", **tree), [])
        found = self.faults(lib=doc, low__file="use crate::high::High;", **tree)
        self.assertEqual(found, ["an upward import:", "    low/file.rs -> high/mod.rs: crate::high::High (line 1)"])
        found = self.faults(lib=doc + "pub struct Root;", low__file="use crate::Root;", **tree)
        self.assertEqual(found, ["an upward import:", "    low/file.rs -> lib.rs: crate::Root (line 1)"])

    def test_rooms_beside_each_other_import_neither_the_other(self):
        doc = "//! Rooms, each importing only those before it: `low`, `left` | `right`, `high`.\nmod low; mod left; mod right; mod high;"
        tree = {"lib": doc, "low": "pub struct Low;", "right": "pub struct Right;", "high": "use crate::left::Left; use crate::right::Right;"}
        self.assertEqual(self.faults(left="use crate::low::Low; pub struct Left;", **tree), [])
        found = self.faults(left="use crate::right::Right; pub struct Left;", **tree)
        self.assertEqual(found[0], "an import of the room beside it:")

    def test_a_declared_order_names_each_module_of_the_root(self):
        doc = "//! Rooms, each importing only those before it: `low`, `gone`.\nmod low; mod high;"
        self.assertEqual(len(self.faults(lib=doc, low="", high="")), 1)


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        told = [line for crate in sys.argv[1:] for line in faults(Path(crate))]
        print("\n".join(told) or "clean")
        sys.exit(bool(told))
    unittest.main()
