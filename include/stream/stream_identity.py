"""A stream as its file, entry and initial state are now, with the fingerprint of its code."""

import ast
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib.util import find_spec, resolve_name
from pathlib import Path

from include.fold.admission import MICROSECOND
from include.ingest.initial_state import read_as_of, read_fingerprint
from include.lake.generations import GenerationRow, Generations
from include.lake.paths import Lake
from include.settings import Stream
from include.stream.manifest import StreamIdentity, code_of
from include.stream_definition import load_definition, pinned_settings

# Raised by a release whose fold gives other results for the same functions and events. The fold's
# own code does not count, as nearly all changes of it change no result.
FOLD_SEMANTICS = 1
STREAMS = "include.streams"
LENGTH = 16  # hex characters
PART_LENGTH = 8
# Names of `pinned_settings` that differ in a stream's file.
CALLED = {"state_schema": "class of the state", "watermark_delay_ms": "watermark_delay"}
# Arguments of `Stream(...)` that are functions; None: `**more`, which may have some.
FUNCTIONS = ("fold", "migrate_state", None)
# They spread the state and decide which rows are in time: the fold of given events is the same.
CHANGE_NO_RESULT = {"buckets", "state_partitions", "watermark_delay_ms"}


def code_fingerprint(stream: Stream, initial_state: str | None) -> str:
    """The fingerprint of a stream's code, settings and initial state, 16 hex characters.

    Modules of `include.streams` that its file imports count; those loaded by a computed name do not.
    """
    pinned = pinned_settings(stream, load_definition(stream).fold)
    hashed = {
        "fold_semantics": FOLD_SEMANTICS,
        "initial_state": initial_state,
        "pinned": {name: pinned[name] for name in pinned.keys() - CHANGE_NO_RESULT},
        "modules": _modules(f"{STREAMS}.{stream.name}"),
    }
    return _hash_of(hashed)


def code_parts(stream: Stream) -> dict[str, str]:
    """Hashes of the parts of the stream's code by name: "function count", "class shared.Sums"."""
    parts: dict[str, list[str]] = {}
    for module, code in _modules(f"{STREAMS}.{stream.name}").items():
        prefix = "" if module == f"{STREAMS}.{stream.name}" else f"{module[len(STREAMS) + 1 :]}."
        for statement in ast.parse(code).body:
            text = ast.unparse(statement)
            name = text.partition(" = ")[0].partition("\n")[0]
            if isinstance(statement, ast.FunctionDef | ast.ClassDef):
                kind = "class" if isinstance(statement, ast.ClassDef) else "function"
                name = f"{kind} {prefix}{statement.name}"
            parts.setdefault(name, []).append(text)
    return {name: _hash_of(texts)[:PART_LENGTH] for name, texts in parts.items()}


def what_changed(lake: Lake, stream: Stream, generations: Generations) -> list[str]:
    """The parts that differ from when the state was made: "function count_events", "setting ttl"."""
    row = generations.current
    if row is None:
        return []
    parts = _differing(row["parts"] or {}, code_parts(stream))
    return [*settings_differ(lake, stream, generations), *parts]


def settings_differ(lake: Lake, stream: Stream, generations: Generations) -> list[str]:
    """The changes that the state cannot go on with: "setting ttl", "watermark_delay"."""
    row = generations.current
    if row is None:
        return []
    now = pinned_settings(stream, load_definition(stream).fold)
    settings = [json.loads(pinned["settings"] or "{}") for pinned in (row, now)]
    names = [CALLED.get(n, n) for n in now if n != "settings" and row[n] != now[n]]
    if row["initial_state"] != initial_fingerprint(lake, generations):
        names.append("initial state")
    return [*(f"setting {name}" for name in _differing(*settings)), *names]


def _differing(was: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    return [name for name in sorted({*was, *now}) if was.get(name) != now.get(name)]


def _hash_of(hashed: object) -> str:
    text = json.dumps(hashed, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def only_code(source: bytes) -> ast.Module:
    """Parse a module, and drop its docstrings and COMMENTS."""
    tree = ast.parse(source)
    tree.body = [statement for statement in tree.body if not _assigns(statement, "COMMENTS")]
    return _WithoutDocstrings().visit(tree)  # type: ignore[no-any-return]


def _without_entry(tree: ast.Module) -> ast.Module:
    """Return the module with the functions alone in `Stream(...)`: the other arguments are pinned.

    Names that only these need are not imported.
    """
    for entry in filter(None, map(_entry_in, tree.body)):
        entry.keywords = [part for part in entry.keywords if part.arg in FUNCTIONS]
    imports = [statement for statement in tree.body if isinstance(statement, ast.ImportFrom)]
    needed = {"*", *_names_in(each for each in tree.body if each not in imports)}
    for each in imports:
        each.names = [alias for alias in each.names if (alias.asname or alias.name) in needed]
    tree.body = [each for each in tree.body if each not in imports or each.names]
    return tree


def _entry_in(statement: ast.stmt) -> ast.Call | None:
    """The call in `STREAM = Stream(...)`; None for a call of another function, which stays code."""
    value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
    if not (_assigns(statement, "STREAM") and isinstance(value, ast.Call)):
        return None
    name = value.func.attr if isinstance(value.func, ast.Attribute) else ast.unparse(value.func)
    return value if name == "Stream" else None


def _names_in(parts: Iterable[ast.AST]) -> set[str]:
    nodes = (node for part in parts for node in ast.walk(part))
    return {node.id for node in nodes if isinstance(node, ast.Name)}


class _WithoutDocstrings(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        """Drop any statement that is a mere string: it does nothing."""
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else node


def _assigns(statement: ast.stmt, name: str) -> bool:
    if isinstance(statement, ast.AnnAssign):
        return ast.unparse(statement.target) == name
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return [ast.unparse(target) for target in targets] == [name]


def _modules(name: str) -> dict[str, str]:
    """The code of the stream's module `name`, and of all modules in `include.streams` that it
    imports, by module."""
    found: dict[str, str] = {}
    waiting = [name]
    while waiting:
        module = waiting.pop()
        file = None if module in found else _file_of(module)
        if file is not None:
            package = module if file.stem == "__init__" else module.rpartition(".")[0]
            found[module], imported = _parsed(file.read_bytes(), package, module == name)
            waiting += [other for other in imported if f"{other}.".startswith(f"{STREAMS}.")]
    return found


@lru_cache(maxsize=100)  # most of a status is this
def _parsed(source: bytes, package: str, has_entry: bool) -> tuple[str, list[str]]:
    """A module's code, and the modules that it imports."""
    tree = only_code(source)
    tree = _without_entry(tree) if has_entry else tree
    return ast.unparse(tree), list(_imported(package, tree))


def _imported(package: str, tree: ast.Module) -> Iterator[str]:
    """All names that may be modules: for `from a import b`, relative to `package`, both a and a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = resolve_name("." * node.level + (node.module or ""), package)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _file_of(module: str) -> Path | None:
    """The source file of a module; None when the name is of something in a module."""
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:  # its parent is no package
        return None
    return None if spec is None or spec.origin is None else Path(spec.origin)


def identity_of(lake: Lake, stream: Stream, generations: Generations) -> StreamIdentity:
    """Return a stream's identity; SettingsError when its file or its initial state is wrong."""
    fold = load_definition(stream).fold
    pinned = generations.current or GenerationRow()
    initial_state = initial_fingerprint(lake, generations)
    code, known = code_fingerprint(stream, initial_state), pinned["code"]
    since_us = None
    if initial_state is not None:  # before the first batch another one may be pinned
        since_us = pinned["initial_as_of_us"] if pinned["initial_state"] == initial_state else None
        since_us = read_as_of(lake, stream.name) if since_us is None else since_us
    return StreamIdentity(
        stream=stream.name,
        source=stream.source,
        output_mode=fold.output_mode,
        time_column="ingested_at" if fold.in_processing_time else "event_time",
        delay_us=stream.watermark_delay // MICROSECOND,
        code=known if known is not None and code_of(known) == code else code,
        state_schema=pinned_settings(stream, fold)["state_schema"],
        since_us=since_us,
    )


def initial_fingerprint(lake: Lake, generations: Generations) -> str | None:
    """The fingerprint of the initial state; the pinned one unless it has changed."""
    pinned = generations.current or GenerationRow()
    return read_fingerprint(lake, generations.stream, pinned.get("initial_state"))
