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
        (
            "avx2 avx512f avx512bw avx512vl avx512_vnni amx_bf16 amx_tile amx_int8",
            "AVX-512 with VNNI and AMX",
        ),
        ("fpu avx2 avx512f avx512bw avx512vl avx512_vnni fma", "AVX-512 with VNNI"),
        ("fpu avx2 avx512f avx512bw avx512vl", "AVX-512"),
        ("fpu avx2 avx512f avx512_vnni", "AVX2"),
        ("fpu avx avx2", "AVX2"),
        ("fpu avx", ""),
    ],
)
def test_the_widest_vectors_are_told(told, flags, said):
    told(f"model name\t: Some CPU 9\nflags\t\t: {flags}\nmodel name\t: another\n")

    assert machine.processor() == "Some CPU 9"
    assert machine.vectors() == said


def test_the_processor_its_vectors_and_the_cores_in_use_are_one_line(told, monkeypatch):
    told("model name\t: Some CPU 9\nflags\t\t: avx2\n")
    monkeypatch.delenv("TOKENROUTER_NATIVE", raising=False)
    here = f"Some CPU 9 (AVX2), {len(os.sched_getaffinity(0))} cores"

    assert machine.machine() == here
    monkeypatch.setenv("TOKENROUTER_NATIVE", "0")
    assert machine.machine() == f"{here}, TOKENROUTER_NATIVE=0"


def test_where_linux_tells_nothing_python_is_asked(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "_CPUINFO", tmp_path / "none")

    assert machine.processor()
    assert machine.vectors() == ""
