"""Route programs as kernels: a plan's program -> one specialised Triton kernel that computes signals and decides.

`layout` says what goes in and out, `source` writes the kernel, `load` keeps it by plan hash, `router` runs it. The first two
know neither torch nor triton, so `trc explain --kernel` needs neither.
"""
