"""Contracts between Temper's services: envelope, events, topics, cards. Invariant: msgspec and the standard library only."""
