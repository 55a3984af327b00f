"""The embedded Kafka and Redis, and the supervised processes they are made of."""

from services.runtime.stack.errors import StackError
from services.runtime.stack.process import Process
from services.runtime.stack.stack import Stack

__all__ = ["Process", "Stack", "StackError"]
