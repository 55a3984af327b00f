"""Engines behind one port. Invariant: every engine keeps the port's contract, so that the service knows none of them."""
