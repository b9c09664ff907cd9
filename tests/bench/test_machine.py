"""What a figure says of the machine that it was measured on."""

import os

import pytest

from tokenrouter import machine


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Return a function that has Linux tell these lines of the processor."""

    def tell(text):
        file = tmp_path / "cpuinfo"
        file.write_text(text)
        monkeypatch.setattr(machine, "_CPUINFO", file)

    return tell


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("fpu avx2 avx512f avx512_bf16 fma", "AVX-512 with bfloat16"),
        ("fpu avx2 avx512f", "AVX-512"),
        ("fpu avx avx2", "AVX2"),
        ("fpu avx", ""),
    ],
)
def test_the_widest_vectors_are_told(told, flags, said):
    told(f"model name\t: Some CPU 9\nflags\t\t: {flags}\nmodel name\t: another\n")

    assert machine.processor() == "Some CPU 9"
    assert machine.vectors() == said


def test_the_processor_its_vectors_and_the_cores_in_use_are_one_line(told):
    told("model name\t: Some CPU 9\nflags\t\t: avx2\n")

    assert machine.machine() == f"Some CPU 9 (AVX2), {len(os.sched_getaffinity(0))} cores"


def test_where_linux_tells_nothing_python_is_asked(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "_CPUINFO", tmp_path / "none")

    assert machine.processor()
    assert machine.vectors() == ""
