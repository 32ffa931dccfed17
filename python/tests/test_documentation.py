"""Docstrings whose examples run, and stubs that know every public name."""

import ast
import doctest
import inspect
from pathlib import Path

import pytest

import varve

STUB = Path(varve.__file__).parent / "_native.pyi"


def public_objects():
    for name in varve.__all__:
        thing = getattr(varve, name)
        yield name, thing
        if inspect.isclass(thing):
            for member in vars(thing):
                if not member.startswith("_"):
                    yield f"{name}.{member}", getattr(thing, member)


EXAMPLES = [(name, thing.__doc__) for name, thing in public_objects() if ">>>" in (getattr(thing, "__doc__", "") or "")]


@pytest.mark.parametrize(("name", "text"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_examples_run(name, text):
    # pybind11 writes the signature above the text.
    test = doctest.DocTestParser().get_doctest(text, {"varve": varve}, name, None, None)
    results = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test)
    assert results.attempted > 0 and results.failed == 0


def test_there_are_examples():
    assert {"Plan", "Shape", "Step", "Cache", "Error", "prefill", "train_codebook"} <= {name for name, _ in EXAMPLES}


def test_stubs_know_every_native_name_and_no_other():
    import varve._native as native

    tree = ast.parse(STUB.read_text())
    stubbed, real = {}, {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            functions = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
            fields = {n.target.id for n in node.body if isinstance(n, ast.AnnAssign)}
            stubbed[node.name] = {name for name in functions | fields if not name.startswith("_")}
        elif isinstance(node, ast.FunctionDef):
            stubbed[node.name] = set()
    dictionaries = {name for name in stubbed if name.endswith("Dict")}
    for name, thing in vars(native).items():
        if not name.startswith("_"):
            members = vars(thing) if inspect.isclass(thing) else {}
            real[name] = {member for member in members if not member.startswith("_")}
    real["CodebookGrain"] -= {"name", "value"}
    assert {name: members for name, members in stubbed.items() if name not in dictionaries} == real


def test_everything_public_has_words():
    for name, thing in public_objects():
        if inspect.isclass(thing) or inspect.isroutine(thing):
            assert (thing.__doc__ or "").strip(), name
