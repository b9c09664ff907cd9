"""The wheel holds all that `trc` needs, away from the checkout."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def trc(tmp_path_factory):
    """`trc` of a new venv with the wheel; its dependencies come from the running environment."""
    home = tmp_path_factory.mktemp("wheel")
    build = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(home),
        str(ROOT),
    ]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    subprocess.run([sys.executable, "-m", "venv", str(home / "venv")], check=True)
    wheel = next(home.glob("*.whl"))
    python = home / "venv/bin/python"
    subprocess.run(
        [python, "-m", "pip", "install", "-q", "--no-deps", str(wheel)],
        check=True,
        capture_output=True,
    )
    site = next((home / "venv/lib").glob("python*/site-packages"))
    # A plain path entry: the editable install of the running environment is not followed from here.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return home / "venv/bin/trc"


def run(trc: Path, *args: str) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return subprocess.run(
        [trc, *args], cwd=trc.parent, env=env, capture_output=True, text=True, check=False
    )


def test_trc_checks_a_policy_away_from_the_checkout(trc):
    done = run(trc, "check", str(ROOT / "examples/demo.route"))

    assert (done.returncode, done.stderr) == (0, "")


def test_the_wheel_is_what_runs(trc):
    code = "import tokenrouter, tokenrouter_kernels, tokenrouter.grammars as g; print(tokenrouter.__file__, g.__file__)"
    done = subprocess.run(
        [trc.with_name("python"), "-c", code],
        cwd=trc.parent,
        capture_output=True,
        text=True,
        check=True,
    )

    assert str(ROOT) not in done.stdout


def test_the_wheel_holds_the_student(trc):
    code = "from tokenrouter.demo import student_dir; print(sorted(p.name for p in student_dir().iterdir()))"
    done = subprocess.run(
        [trc.with_name("python"), "-c", code],
        cwd=trc.parent,
        capture_output=True,
        text=True,
        check=True,
    )

    assert "student.safetensors" in done.stdout


def test_the_wheel_holds_the_playground(trc):
    code = (
        "from importlib.resources import files; from tokenrouter.playground.app import FILES; from tokenrouter.playground.desk import Desk;"
        "print([name for name, _ in FILES.values() if not files('tokenrouter.playground').joinpath(name).is_file()], len(Desk().begin().examples))"
    )
    done = subprocess.run(
        [trc.with_name("python"), "-c", code],
        cwd=trc.parent,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == f"[] {len(list(ROOT.glob('examples/*.route')))}\n"
