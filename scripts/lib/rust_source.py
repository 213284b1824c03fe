"""Reads the Rust source of a crate: code without comments and tests, the tree of its modules, and the paths it names.

It knows the parts of the syntax that the sources of this workspace use; it does not expand macros.
"""
import dataclasses
import functools
import re

TOKENS = re.compile(
    r'//[^\n]*|/\*.*?\*/|\bb?r(#+)".*?"\1|\bb?r"[^"]*"|\bb"(?:\\.|[^"\\])*"|"(?:\\.|[^"\\])*"'
    r"|b?'(?:\\[^'\n]+|\\'|[^\\'\n])'", re.DOTALL)
TEST_ATTRIBUTE = re.compile(r"#\[cfg\(test\)\]|#\[test\]")
USE = re.compile(r"(?:\b(pub(?:\s*\([^)]*\))?)\s+)?\buse\s+([^;]+);")
DEFINITION = re.compile(r"\b(?:fn|struct|enum|union|trait|type|const|static|macro_rules!)\s+(\w+)")
MODULE = re.compile(r"(?:\b(pub(?:\s*\([^)]*\))?)\s+)?\bmod\s+(\w+)\s*([;{])")


def blank(text):
    return re.sub(r"[^\n]", " ", text)


def without_comments(text):
    """The same length, with comments and, in the second text, also strings and characters replaced by blanks."""
    with_strings = TOKENS.sub(lambda token: blank(token[0]) if token[0].startswith("/") else token[0], text)
    # The quotes of a string stay, so that `["x"]` is still an index with a string.
    bare = TOKENS.sub(lambda token: blank(token[0]) if token[0][0] in "/'b" or len(token[0]) < 2
                      else '"' + blank(token[0][1:-1]) + '"', text)
    return with_strings, bare


def end_of_item(bare, at):
    """The end of the item that begins at `at`: after its semicolon or its closing brace."""
    depth = 0
    for match in re.compile(r"[{}()\[\];]").finditer(bare, at):
        char = match[0]
        depth += (char in "{([") - (char in "})]")
        if depth == 0 and char in ";}":
            return match.end()
    return len(bare)


@dataclasses.dataclass
class Source:
    """A file: `text` without comments, `bare` also without the contents of strings, both without tests."""
    name: str
    whole: str
    text: str
    bare: str

    def line(self, at):
        return self.bare.count("\n", 0, at) + 1


@functools.cache
def read(root, path):
    whole = path.read_text()
    text, bare = without_comments(whole)
    while match := TEST_ATTRIBUTE.search(bare):
        end = end_of_item(bare, match.end())
        bare, text = (part[:match.start()] + blank(part[match.start():end]) + part[end:] for part in (bare, text))
    return Source(str(path.relative_to(root)), whole, text, bare)


def leaves(tree):
    """The paths of a `use`, as (segments, the name that it gets here)."""
    tree = re.sub(r"\s+", " ", tree).strip().removeprefix("::")
    head, brace, rest = tree.partition("{")
    if brace:
        prefix = [part.strip() for part in head.split("::") if part.strip()]
        depth, start, inner = 0, 0, rest[:rest.rindex("}")]
        parts = []
        for at, char in enumerate(inner):
            depth += (char == "{") - (char == "}")
            if char == "," and depth == 0:
                parts.append(inner[start:at])
                start = at + 1
        for part in parts + [inner[start:]]:
            if part.strip():
                for segments, name in leaves(part):
                    if segments == ["self"]:
                        yield prefix, prefix[-1] if name == "self" else name
                    else:
                        yield prefix + segments, name
        return
    path, _, alias = tree.partition(" as ")
    segments = [part.strip() for part in path.split("::")]
    yield segments, alias.strip() or segments[-1]


class Module:
    """A module: its file, the part of the file that is its own, its children, and what it imports."""

    def __init__(self, source, parent=None, name="crate", span=None, public=True):
        self.source, self.parent, self.name, self.public = source, parent, name, public
        self.span = span or (0, len(source.bare))
        self.children, self.uses, self.globs = {}, {}, []
        self.code = ""

    @functools.cached_property
    def defined(self):
        return set(DEFINITION.findall(self.code))

    @property
    def path(self):
        return (self.parent.path if self.parent else []) + [self.name]

    @property
    def crate(self):
        return self.parent.crate if self.parent else self

    def walk(self):
        yield self
        for child in self.children.values():
            yield from child.walk()

    def start(self, segments):
        """Where a path begins: a module and the other segments. `None` if it begins in another crate."""
        module, rest = self, list(segments)
        if rest[0] == "crate":
            return self.crate, rest[1:]
        if rest[0] in ("self", "super"):
            while rest and rest[0] in ("self", "super"):
                module, rest = (module.parent or module) if rest[0] == "super" else module, rest[1:]
            return module, rest
        return (self, rest) if rest[0] in self.children or rest[0] in self.uses else None

    def resolve(self, segments, seen=()):
        """The module that a path leads to, through re-exports, and the other segments: names of items."""
        begin = self.start(segments)
        if not begin:
            return None
        module, rest = begin
        while rest and (module, rest[0]) not in seen:
            seen = (*seen, (module, rest[0]))
            if rest[0] in module.children:
                module, rest = module.children[rest[0]], rest[1:]
                continue
            if rest[0] in module.uses:
                target = module.resolve(module.uses[rest[0]], seen)
                if not target:
                    return None
            else:
                target = next(module.from_globs(rest[0], seen), None)
                if not target:
                    return module, rest
            module, rest = target[0], target[1] + rest[1:]
        return module, rest

    def from_globs(self, name, seen):
        """The definition of a name that a `use` with `*` may import."""
        for glob in self.globs if name not in self.defined else []:
            found = self.resolve(glob, seen)
            if found and not found[1] and found[0] is not self:
                target = found[0].resolve(["self", name], seen)
                if target and (not target[1] or target[1][0] in target[0].defined):
                    yield target

    def paths(self):
        """Each path in the code of this module, with its position: those of `use` (not re-exported), then others."""
        for match in USE.finditer(self.code):
            if not match[1]:
                for segments, _ in leaves(match[2]):
                    yield match.start(), segments
        others = USE.sub(lambda use: blank(use[0]), self.code)
        for match in re.finditer(r"(?<![\w:.])(\w+)((?:\s*::\s*\w+)+)", others):
            yield match.start(), re.split(r"\s*::\s*", match[0])


def load(root, path, folder, module_of=None, **options):
    """The tree of modules that begins in this file. The children of its modules are in `folder`."""
    module = Module(read(root, path), module_of, **options)
    fill(root, module, folder)
    return module


def fill(root, module, folder):
    bare = module.source.bare
    code = blank(bare[:module.span[0]]) + bare[module.span[0]:module.span[1]] + blank(bare[module.span[1]:])
    for match in MODULE.finditer(code):
        if not code[match.start():match.end()].strip():
            continue
        name, public = match[2], match[1] == "pub"
        if match[3] == "{":
            end = end_of_item(code, match.end() - 1)
            child = Module(module.source, module, name, (match.end(), end - 1), public)
            fill(root, child, folder / name)
        else:
            file, inner = folder / f"{name}.rs", folder / name / "mod.rs"
            path = file if file.exists() else inner
            if not path.exists():
                continue
            child = load(root, path, folder / name, module, name=name, public=public)
        module.children[name] = child
        if match[3] == "{":
            code = code[:match.start()] + blank(code[match.start():end]) + code[end:]
    module.code = code
    for match in USE.finditer(code):
        for segments, name in leaves(match[2]):
            if name == "*":
                module.globs.append(segments[:-1])
            else:
                module.uses[name] = segments
