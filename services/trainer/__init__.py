"""Policy optimisation from recorded trajectories. Invariant: a group is trained once at most, and what was not is read again."""
