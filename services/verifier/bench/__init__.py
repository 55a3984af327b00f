"""`temper bench verifier`: what a verdict costs, against what it could cost at least and against other ways to jail.

Invariant: all systems do the same work interleaved in one run, all processor time is counted by cgroups outside the
measured processes, and a verdict that is not the expected one ends the benchmark.
"""
