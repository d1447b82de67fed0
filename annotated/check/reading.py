"""Read a graded file before it is executed: what it may say, and where its attributes are watched."""

import ast
from collections.abc import Iterator
from typing import Any

from annotated.check.given import GIVEN

NAMES = {key: names.split() for key, names in GIVEN["names"].items()}


class Refused(AttributeError):  # noqa: N818 (it is the file's error)
    """A graded file does what no part of a Transformer needs."""


def refuse(name: str) -> Any:
    raise Refused(f"a graded file does not use `{name}`")


def read(source: bytes, path: str) -> ast.AST:
    """Parse a file, and watch its attributes. Raises Refused for what a file may not say."""
    tree = ast.parse(source, path)
    mains = [n for n in tree.body if isinstance(n, ast.If) and "id='__name__'" in ast.dump(n.test)]
    for main in mains:  # what stands there is not executed
        main.body = [ast.copy_location(ast.Pass(), main)]
    methods = [f for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for f in node.body]
    for node in ast.walk(tree):
        for said in unsayable(node):
            if said == "__getattr__" and node in methods:  # not a module's
                continue
            raise Refused(f"line {getattr(node, 'lineno', 1)}: a graded file does not use `{said}`")
    return ast.fix_missing_locations(Watch().visit(tree))


def unsayable(node: ast.AST) -> Iterator[str]:
    """Return the names in a node that a file may not use, and `case` where a pattern looks into objects."""
    looks = isinstance(node, ast.MatchClass) and (node.patterns or node.kwd_patterns)
    if looks or (isinstance(node, ast.pattern) and any(isinstance(x, ast.Attribute) for x in ast.walk(node))):
        yield "case"
    if isinstance(node, ast.Name) and node.id == "__class__":  # in its body, before the class is looked at
        yield "__class__"
    reads = isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load)
    fields = [] if isinstance(node, ast.Constant) else [value for _, value in ast.iter_fields(node)]
    for value in fields:
        for name in value if isinstance(value, list) else [value]:
            for part in name.split(".") if isinstance(name, str) else ():  # of a module
                if not sayable(part, reads, isinstance(node, ast.Attribute)):
                    yield part


def sayable(name: str, reads: bool, of_object: bool = True) -> bool:
    if is_special(name):
        return name in NAMES["read" if reads else "defined"]
    return not of_object or name not in NAMES["refused"]


def is_special(name: str) -> bool:
    return name[:2] == name[-2:] == "__"


class Watch(ast.NodeTransformer):
    """Lead attributes and results through functions of `Confinement`, by names that no file can spell."""

    def through(self, name: str, node: Any, *more: ast.expr) -> ast.Call:
        call = ast.Call(ast.Name(f"@{name}", ast.Load()), [node, *more], [])
        return ast.fix_missing_locations(ast.copy_location(call, node))

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Call):
            node.value = self.through("spread", node.value, ast.Constant(len(node.targets[0].elts)))
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        return self.through("seen", node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if node.attr == "__dict__":
            return self.through("vars", node.value)
        if node.attr.startswith("_"):
            node.value = self.through("private", node.value, ast.Constant(node.attr))
        if not isinstance(node.ctx, ast.Load):
            node.value = self.through("writable", node.value)
            return node
        return self.through("seen", node)
