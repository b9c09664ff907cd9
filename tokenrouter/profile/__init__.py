"""From a plan to the windows of its batches: step times, how requests move, and the closed system that the two make.

`structs` and `io` are the profile that `trc profile` measures; `reference` is what stands for one where nothing was
measured; `ways` is how requests move; `system` makes the closed system; `windows` has it solved and writes the table into
the plan. Nothing here loads a model.
"""
