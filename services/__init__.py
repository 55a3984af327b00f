"""The services: each talks to the others only through the log, and imports none of them."""
