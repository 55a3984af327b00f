"""The console: command line, live view, run reports. It starts the other services as processes and talks to them by the log."""
