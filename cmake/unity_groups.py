"""Prints groups of source files that can be compiled as one: python3 unity_groups.py SIZE FILE...

One line per file, `GROUP FILE`. Two files that give different things the same name at namespace scope (a
helper in an unnamed namespace, a macro) never share a group. A file is alone if one of its names is also a
type's in some header of the tree, or, for a test, anything's: it could hide that from its neighbours.
"""

import glob
import re
import sys

COMMENT_OR_TEXT = re.compile(
    r'R"(\w*)\((?:.|\n)*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|//[^\n]*|/\*(?:.|\n)*?\*/')
DIRECTIVE = re.compile(r'^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', re.M)
NAMESPACE = re.compile(r'\s*(?:inline\s+)?namespace\b[^;={]*$')
ALIAS = re.compile(r'(?:using|namespace)\s+(\w+)\s*=\s*(.*)', re.S)
TYPE = re.compile(r'(?:template\s*<.*>\s*)?(?:struct|class|union|enum(?:\s+(?:class|struct))?)\s+(\w+)', re.S)
FUNCTION = re.compile(r'(?<![:\w])([A-Za-z_]\w*)\s*\(')
VARIABLE = re.compile(r'([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*(?:=.*)?$', re.S)
NO_NAME = re.compile(r'\s*(?:$|TEST|TYPED_TEST|INSTANTIATE_|using\s+namespace\b|using\s+[\w:]+$|static_assert\b)')
MEMBER = re.compile(r'[^=(]*\w::~?\w+\s*\(')  # defined outside its class


def declarations(text):
    """The text of each declaration at namespace scope, without its body."""
    scopes = []  # of each open brace: is it a namespace's?
    start = 0
    for match in re.finditer(r'[{};]', text):
        at_namespace_scope = all(scopes)
        piece = text[start:match.start()]
        if match.group() == '{':
            is_namespace = at_namespace_scope and bool(NAMESPACE.match(piece))
            if at_namespace_scope and not is_namespace:
                yield piece.strip()
            scopes.append(is_namespace)
        elif match.group() == '}':
            if scopes:
                scopes.pop()
        elif at_namespace_scope:
            yield piece.strip()
        if all(scopes):
            start = match.end()


def code_of(path):
    """A file's text without comments and with empty literals."""
    with open(path, encoding='utf-8') as file:
        return COMMENT_OR_TEXT.sub(lambda m: '""' if m.group()[0] in 'R"\'' else ' ', file.read())


def names_of(path):
    """Maps each name to what it stands for, or to the path itself where that is unlike any other file's."""
    text = code_of(path)
    names = {m: path for m in re.findall(r'^[ \t]*#[ \t]*define[ \t]+(\w+)', text, re.M)}
    for declaration in declarations(DIRECTIVE.sub('', text)):
        alias = ALIAS.match(declaration)
        if alias:
            names[alias.group(1)] = alias.group(2)
        elif not NO_NAME.match(declaration) and not MEMBER.match(declaration):
            before_value = declaration.split('=')[0]
            match = TYPE.match(declaration) or FUNCTION.search(before_value) or VARIABLE.search(declaration)
            if match:
                names[match.group(1)] = path
    return names


def names_of_headers():
    """All names, and those of types."""
    names, types = set(), set()
    for folder in ('include', 'src', 'cli', 'tests'):
        for path in glob.glob(folder + '/**/*.h', recursive=True):
            names.update(names_of(path))
            for declaration in declarations(DIRECTIVE.sub('', code_of(path))):
                match = TYPE.match(declaration)
                if match:
                    types.add(match.group(1))
    return names, types


def main():
    size = int(sys.argv[1])
    header_names, header_types = names_of_headers()
    groups = []  # (limit, files, names)
    for path in sorted(sys.argv[2:]):
        names = names_of(path)
        hidden = header_names if path.endswith('_test.cc') else header_types
        size_of_its_group = size if hidden.isdisjoint(names) else 1
        for number, (limit, files, taken) in enumerate(groups):
            if len(files) < min(limit, size_of_its_group) and all(taken.get(n, w) == w for n, w in names.items()):
                break
        else:
            number, files, taken = len(groups), [], {}
            groups.append((size_of_its_group, files, taken))
        files.append(path)
        taken.update(names)
        print(number, path)


main()
