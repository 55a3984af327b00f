"""The verifier: sandbox slots and the families that turn an answer into a verdict."""
