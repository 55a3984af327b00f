"""`python -m services.runtime.stack`: fetch and check the broker's jars; one line when that fails."""

import sys

from services.runtime.stack import StackError, jars


def main() -> int:
    """Exit status 0 done, 3 when something outside failed."""
    try:
        jars.ensure()
    except StackError as error:
        sys.stderr.write(f"temper: {error}\n")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
