"""The chaos suite. Invariant: what is found is found in the log, by code that shares nothing with what wrote it but the fold."""
