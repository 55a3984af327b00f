"""Seeded task generators. Invariant: pure in `(rng, difficulty, options)`; same state, same sample."""
