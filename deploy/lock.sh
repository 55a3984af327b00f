#!/bin/sh
# Recompile requirements/*.txt: one set of versions for everything. Extra arguments go to the first resolution,
# e.g. `deploy/lock.sh --upgrade`. No index address and no path of this machine may get into a file.
set -eu
cd "$(dirname "$0")/.."
export UV_PYTHON_DOWNLOADS=never
uv=.venv/bin/uv
[ -x "$uv" ] || { echo "lock: $uv is missing: run 'make setup' first" >&2; exit 2; }

# compile OUTPUT ARGUMENTS...
compile() {
    output=requirements/$1.txt
    shift
    "$uv" pip compile --quiet --python-version 3.12 --generate-hashes --no-emit-index-url --no-header --no-annotate \
        --override requirements/overrides.txt --output-file "$output" "$@" >/dev/null
}

compile dev pyproject.toml --extra dev "$@"
for group in runtime scheduler evaluator verifier trainer sampler console stack models bench; do
    # Hashes of the constraint file would be demanded of every input; its versions are what counts.
    sed -n 's/^\([A-Za-z0-9][^ ;]*==[^ ;\\]*\).*/\1/p' requirements/dev.txt >.venv/constraints.txt
    rm -f "requirements/$group.txt"
    compile "$group" pyproject.toml --extra "$group" --constraint .venv/constraints.txt
done
# The installer itself, which pip fetches into a new environment.
echo uv | compile uv - "$@"
rm -f .venv/constraints.txt

if grep -nE '^-|://|file:|/home/' requirements/*.txt | grep -v overrides.txt; then
    echo "lock: an address or a path got into the files above" >&2
    exit 1
fi
