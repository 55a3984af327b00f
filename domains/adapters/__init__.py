"""Public task sets as domains. Invariant: an adapter reads data only; nothing of a package's scoring code decides a verdict."""
