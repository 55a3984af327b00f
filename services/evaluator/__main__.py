"""Start the evaluator service."""

from services.evaluator.app import run
from services.runtime import lifecycle

raise SystemExit(lifecycle.main("evaluator", run))
