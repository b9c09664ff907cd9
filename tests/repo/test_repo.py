"""What holds for the whole repository: sizes, headers, packages, documents."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIBRARY = sorted([*ROOT.glob("tokenrouter/**/*.py"), *ROOT.glob("kernels/**/*.py")])


@pytest.mark.parametrize("path", LIBRARY, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_module_is_short_and_says_what_it_is(path):
    text = path.read_text(encoding="utf-8")

    assert len(text.splitlines()) <= 400
    assert ast.get_docstring(ast.parse(text))


def test_the_package_list_is_the_tree():
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    found = {
        ".".join(p.parent.relative_to(root).parts)
        for root, package in ((ROOT, "tokenrouter"), (ROOT / "kernels", "tokenrouter_kernels"))
        for p in root.glob(f"{package}/**/__init__.py")
    }

    assert set(setuptools["packages"]) == found | {
        "tokenrouter.examples",
        "tokenrouter.grammars",
        "tokenrouter.pages",
    }


def test_the_architecture_names_every_package():
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"][
        "packages"
    ]

    missing = [name for name in packages if f"`{name}`" not in text]

    assert missing == []


def test_layers_hold():
    result = subprocess.run(
        [Path(sys.executable).with_name("lint-imports")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 0, result.stdout
