"""The shared kit of all services; it knows no service."""
