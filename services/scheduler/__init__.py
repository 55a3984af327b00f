"""The queue. Invariant: every submitted task is either live or ended in exactly one terminal state, after any crash."""
