"""How long threads that wait for each other look on before they sleep, in processes that run models.

Torch's threads are libgomp's, which by itself looks on far longer. Where another process wants one of the cores too, the
thread that is missing stands behind it, and one that looks on keeps the kernel from moving it to the core that has nothing to do:
a step then takes time slices of milliseconds for each of its parallel loops. The compiled kernels do likewise
(`tokenrouter_kernels/native/team.h`).
"""

from __future__ import annotations

import os

LOOKS = "2000"  # each with a pause of the processor
OWN = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")  # by which a user says how long


def environment() -> dict[str, str]:
    """Return the environment for a process that runs a model; what the user says about waiting holds."""
    if any(name in os.environ for name in OWN):
        return dict(os.environ)
    return os.environ | {"GOMP_SPINCOUNT": LOOKS}
