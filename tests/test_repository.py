"""Rules of the repository: imports point one way, docs' commands compose, sources are ASCII."""

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from anchorcontext.cli import COMMANDS
from anchorcontext.config.compose import read_config

ROOT = Path(__file__).resolve().parents[1]
CODE = ("anchorcontext", "data_prep")

BIND = ("anchorcontext.context_parallel.plan", "anchorcontext.context_parallel.context")
"""The one arrow upwards: `ContextPlan.bind` makes an `AttentionContext`. docs/architecture.md says so."""
SHARED = ("errors", "progress", "machine", "config.schema", "data_prep.errors", "data_prep.disk")


def layers() -> dict[str, set[str]]:
    """What each part may import, from the lowest part to the highest, as docs/architecture.md has it."""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    table = text.split("<!-- layers")[1].split("| --- | --- |\n")[1].split("\n\n")[0]
    rows = [re.findall(r"`([\w.]+)`", line) for line in table.splitlines()]
    found: dict[str, set[str]] = {}
    for part, *named in rows:
        found[part] = {*named, *(name for name in SHARED if name.split(".")[0] in found)}
    return found


LAYERS = layers()


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def imports_of(path: Path) -> Iterator[str]:
    """Modules that a file imports, wherever in it, as dotted names; `from a import b` gives `a` and `a.b`."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def part_of(module: str) -> str:
    """The part of the project that a module belongs to: `anchorcontext.train.loop` -> `train`."""
    names = module.split(".")
    if names[-1] == "__main__":
        return "__main__"
    return names[1] if names[0] == "anchorcontext" and len(names) > 1 else names[0]


def is_module(dotted: str) -> bool:
    path = ROOT / Path(*dotted.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def dotted_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def test_layers_are_in_order() -> None:
    for number, (part, named) in enumerate(LAYERS.items()):
        for name in named:
            assert name.split(".")[0] in list(LAYERS)[:number], f"{part} stands above no {name} in the table"


@pytest.mark.parametrize("path", python_files(*CODE), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path: Path) -> None:
    dotted = dotted_name(path)
    own = part_of(dotted)
    assert own in LAYERS, f"{own} is a new part: give it a row in docs/architecture.md"
    allowed = LAYERS[own]
    for module in imports_of(path):
        if module.split(".")[0] not in CODE or module in CODE or not is_module(module):
            continue
        inside = module.removeprefix("anchorcontext.")
        fine = part_of(module) == own or any(
            f"{inside}.".startswith(f"{name}.") or name.startswith(f"{inside}.") for name in allowed
        )
        assert fine, f"{dotted} imports {module}; {own} may import {', '.join(sorted(allowed)) or 'nothing of ours'}"


def module_level_imports(tree: ast.AST) -> Iterator[ast.stmt]:
    """Import statements that run, or are checked, with the module: outside functions, under `if TYPE_CHECKING` too."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from module_level_imports(node)


def arrows() -> dict[str, set[str]]:
    """Which of our modules each module imports, but for the children that a package's `__init__` re-exports."""
    found: dict[str, set[str]] = {}
    for path in python_files(*CODE):
        own = dotted_name(path)
        package = own if path.name == "__init__.py" else own.rpartition(".")[0]
        named: set[str] = set()
        for node in module_level_imports(ast.parse(path.read_text(encoding="utf-8"))):
            named |= _modules_of(node, package)
        found[own] = {name for name in named if name != own and not (package == own and name.startswith(f"{own}."))}
    return found


def _modules_of(node: ast.stmt, package: str) -> set[str]:
    """The modules, of ours alone, that an import statement needs: `from a import b` is `a.b` if that is a module."""
    if isinstance(node, ast.Import):
        names = {alias.name for alias in node.names}
    else:
        assert isinstance(node, ast.ImportFrom)
        above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        names = {f"{base}.{alias.name}" if is_module(f"{base}.{alias.name}") else base for alias in node.names}
    return {name for name in names if name.split(".")[0] in CODE and is_module(name)}


def cycles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """Groups of modules that reach each other."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        seen: set[str] = set()
        waiting = list(graph[start])
        while waiting:
            if (name := waiting.pop()) not in seen:
                seen.add(name)
                waiting += graph.get(name, set())
        reached[start] = seen
    return {
        frozenset(name for name in reached[start] if start in reached.get(name, set()))
        for start in graph
        if start in reached[start]
    }


def test_no_modules_import_each_other() -> None:
    graph = arrows()
    importer, imported = BIND
    graph[importer].remove(imported)
    assert cycles(graph) == set()


def test_a_cycle_is_found() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == {frozenset("bc")}


def imported_packages(*folders: str) -> dict[str, set[str]]:
    """Every module's imports by file, for rules about other projects' packages."""
    return {str(path.relative_to(ROOT)): set(imports_of(path)) for path in python_files(*folders)}


def test_data_prep_needs_no_torch_and_models_know_nothing_of_ranks() -> None:
    for path, modules in imported_packages("data_prep").items():
        assert not any(name.split(".")[0] in ("torch", "deepspeed", "anchorcontext") for name in modules), path
    for path, modules in imported_packages(
        "anchorcontext/models", "anchorcontext/rope", "anchorcontext/attention"
    ).items():
        assert not any(name.startswith(("torch.distributed", "deepspeed")) for name in modules), path


def test_every_package_folder_has_an_init() -> None:
    for path in python_files(*CODE):
        assert (path.parent / "__init__.py").is_file(), f"{path.parent} would not be installed"


def text_files() -> list[Path]:
    suffixes = {".py", ".yaml", ".md", ".toml", ".txt", ".sh", ".sbatch"}
    folders = (*CODE, "configs", "scripts", "tests", "docs", "benchmarks", "examples")
    found = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in suffixes]
    return sorted(found) + [path for path in ROOT.iterdir() if path.suffix in suffixes] + [ROOT / "Makefile"]


def test_sources_are_ascii() -> None:
    for path in text_files():
        text = path.read_bytes()
        assert text.isascii(), f"{path.relative_to(ROOT)}: line {text[: _first_non_ascii(text)].count(10) + 1}"


def _first_non_ascii(text: bytes) -> int:
    return next(index for index, byte in enumerate(text) if byte > 127)


def documents() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]


def commands_in(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Commands of ours in a document's shell blocks, as (name, what follows)."""
    for block in re.findall(r"^```bash\n(.*?)^```", path.read_text(encoding="utf-8"), re.M | re.S):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            for index, word in enumerate(words):
                module = word.removeprefix("anchorcontext.")
                if Path(word).name == "anchorcontext" and index + 1 < len(words):
                    yield words[index + 1], words[index + 2 :]
                elif word.startswith("anchorcontext.") and words[index - 1] in ("-m", "--module"):
                    yield module, words[index + 1 :]


def test_commands_in_the_documents_compose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    checked: set[tuple[str, ...]] = set()
    for document in documents():
        for command, arguments in commands_in(document):
            overrides = [word for word in arguments if "=" in word and not word.startswith("--")]
            if command.startswith("--") or (command, *overrides) in checked:
                continue
            assert command in COMMANDS, f"{document} names a command that does not exist: {command}"
            assert read_config(command, overrides) is not None
            checked.add((command, *overrides))
    assert len(checked) > 5, "no commands found: has the form of the documents changed?"


def test_links_in_the_documents_lead_somewhere() -> None:
    for path in documents():
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (path.parent / target).exists(), f"{path.relative_to(ROOT)} links to {target}"


@pytest.mark.slow
def test_an_installed_wheel_finds_its_configs(tmp_path: Path) -> None:
    """Built outside the checkout, unpacked, and asked for a config from elsewhere."""
    for name in (*CODE, "configs"):
        shutil.copytree(ROOT / name, tmp_path / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / "source")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(tmp_path / "site"), str(tmp_path / "source")], check=True, cwd=tmp_path)

    code = "from anchorcontext.cli import main; main()"
    command = [sys.executable, "-c", code, "train", "experiment=llama2_7b_64k", "--cfg", "job"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    shown = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert "base: 5000000.0" in shown.stdout
    installed = {
        path.relative_to(tmp_path / "site/anchorcontext/_configs") for path in tmp_path.rglob("site/**/*.yaml")
    }
    assert installed == {path.relative_to(ROOT / "configs") for path in (ROOT / "configs").rglob("*.yaml")}


@pytest.mark.parametrize(
    ("folders", "extras"), [(CODE, ()), ((*CODE, "examples", "tests"), ("dev",))], ids=["installed", "developed"]
)
def test_every_third_party_import_is_declared(folders: tuple[str, ...], extras: tuple[str, ...]) -> None:
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = metadata["optional-dependencies"]
    offered = [text for name in groups if name != "dev" or name in extras for text in groups[name]]
    declared = {canonicalize_name(Requirement(text).name) for text in [*metadata["dependencies"], *offered]}
    distributions = {"hydra": "hydra-core", "yaml": "pyyaml"}
    ours = {
        *CODE,
        "tests",
        "examples",
        "benchmarks",
        *(path.stem for path in python_files("examples")),
    }  # a script sees its folder
    for path, modules in imported_packages(*folders).items():
        for name in {module.split(".")[0] for module in modules} - sys.stdlib_module_names - ours:
            assert canonicalize_name(distributions.get(name, name)) in declared, f"{path} imports {name}"


def test_every_constraint_is_within_the_declared_range() -> None:
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = metadata["optional-dependencies"]
    declared = [Requirement(text) for text in [*metadata["dependencies"], *groups["dev"]]]
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    versions = {canonicalize_name(name): version for name, version in pinned.items()}
    for requirement in declared:
        version = versions.get(canonicalize_name(requirement.name))
        assert version is not None, f"constraints.txt pins no {requirement.name}"
        assert requirement.specifier.contains(version), f"{requirement} does not admit the tested {version}"
