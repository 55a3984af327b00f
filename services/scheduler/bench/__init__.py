"""`temper bench scheduler` and `temper bench pipeline`: what a scheduling decision and a task through the log cost.

Invariant: all systems do the same work interleaved in one run, and a task that is lost or done twice ends the benchmark.
"""
