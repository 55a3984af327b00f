#!/bin/sh
# Make .venv with everything that the project needs; `make setup` calls it. Idempotent: a stamp holds the checksum of
# every input, and nothing is done while it matches. What may be installed here is; else one line says what to install.
set -eu
cd "$(dirname "$0")/.."
export UV_PYTHON_DOWNLOADS=never
unset PYTHONHOME PYTHONPATH VIRTUAL_ENV

stamp=.venv/temper-setup.stamp

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 3; }

inputs() {
    cat deploy/setup.sh .python-version requirements/*.txt deploy/broker/jgo.lock.toml pyproject.toml services/verifier/jail/*.[ch] 2>/dev/null |
        sha256sum | cut -d ' ' -f 1
    # An environment does not survive being moved.
    pwd -P
}

complete() {
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(inputs)" ] &&
        .venv/bin/python -c '' 2>/dev/null && [ -x .venv/bin/temper ] && [ -d .venv/temper-broker/jars ] &&
        [ -n "$(ls services/verifier/jail/build 2>/dev/null)" ]
}

has_libnl() { ldconfig -p 2>/dev/null | grep -q 'libnl-route-3\.so\.200'; }
has_static_c() {
    command -v gcc >/dev/null 2>&1 && echo 'int main(void){return 0;}' | gcc -x c -static -o /dev/null - 2>/dev/null
}

system_packages() {
    missing=
    has_libnl || missing="libnl-route-3-200"
    has_static_c || missing="$missing gcc libc6-dev"
    missing=${missing# }
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        say "installing $missing"
        # shellcheck disable=SC2086
        { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $missing; } \
            >.setup-apt.log 2>&1 </dev/null || fail "apt-get could not install: $missing (see .setup-apt.log)"
        rm -f .setup-apt.log
    else
        fail "missing: $missing; install them (Debian: apt-get install $missing; elsewhere: libnl3, gcc, static libc)"
    fi
}

usable_python() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 12))' 2>/dev/null
}

environment() {
    if ! .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null ||
        [ "$(.venv/bin/python -c 'import sys; print(sys.prefix)')" != "$(pwd -P)/.venv" ]; then
        python=
        for candidate in python3.12 python3 python3.13 python3.14; do
            if command -v "$candidate" >/dev/null 2>&1 && usable_python "$candidate"; then python=$candidate; break; fi
        done
        [ -n "$python" ] || fail "no Python 3.12 or newer with venv: install python3.12 and python3.12-venv"
        say "making .venv with $("$python" --version)"
        "$python" -m venv --clear .venv || fail "$python -m venv failed: install the venv package of that Python"
    fi
    if ! .venv/bin/uv --version 2>/dev/null | grep -qF "uv $(sed -n 's/^uv==\([^ ]*\).*/\1/p' requirements/uv.txt)"; then
        .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt ||
            fail "uv could not be installed: can a package index be reached?"
    fi
    # What fetches the broker's jars comes first, so that they load while the large packages do.
    locked stack
    broker &
    jars=$!
    say "installing the locked packages (some GB the first time)"
    locked dev
    .venv/bin/uv pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation -e . ||
        fail "the project itself could not be installed"
    wait "$jars"
}

# The file is the whole resolved set: nothing is to be resolved again.
locked() {
    .venv/bin/uv pip install --quiet --python .venv/bin/python --no-deps --require-hashes --compile-bytecode \
        -r "requirements/$1.txt" || fail "the packages of requirements/$1.txt could not be installed"
}

jail() {
    say "building the jail's init"
    .venv/bin/python -c 'from services.verifier.jail.binaries import build_all; build_all()' ||
        fail "the jail's init does not compile"
}

broker() {
    say "fetching and checking the broker's jars"
    # Not fatal: a broker that runs elsewhere (TEMPER_KAFKA) does as well, and the message says so.
    .venv/bin/python -m services.runtime.stack || return 0
}

complete && { [ "${1:-}" = --quiet ] || say "up to date"; exit 0; }
# Two at once would undo each other's work; the second finds all done.
exec 9>.setup.lock
if command -v flock >/dev/null 2>&1; then flock -w 900 9 || fail "another setup has been running for 15 minutes"; fi
complete && { say "up to date"; exit 0; }
rm -f "$stamp"
system_packages
environment
jail
inputs >"$stamp"
say "done"
