"""Start the verifier service; or, with arguments, one of its commands: `verify`, `validate`, `sandbox run`, `bench`."""

from __future__ import annotations

import sys

from services.runtime.terminal import command


def main(argv: list[str]) -> int:
    """Run what `argv` asks for; returns the exit status."""
    if argv[:1] == ["sandbox"]:
        from services.verifier import sandbox_cli

        parser = sandbox_cli.Parser(prog="temper sandbox", allow_abbrev=False)
        run = parser.add_subparsers(dest="action", required=True).add_parser("run", allow_abbrev=False)
        sandbox_cli.add_arguments(run)
        return sandbox_cli.main(parser.parse_args(argv[1:]))
    if argv[:1] == ["bench"]:
        from services.verifier.bench import main as bench

        return bench.main(argv[1:])
    if argv:
        from services.verifier import cli

        return cli.main(argv)
    from services.runtime import lifecycle
    from services.verifier.app import run as serve

    return lifecycle.main("verifier", serve)


if __name__ == "__main__":
    if sys.argv[1:]:
        from services.runtime import parent

        parent.follow()
    raise SystemExit(command(lambda: main(sys.argv[1:])))
