"""Supervised builder of the tiny base. Invariant: seed, cards and settings decide every training token."""
