#!/usr/bin/env bash
# Runs one cell of a nightly on another commit: base.sh COMMIT CELL.json OUT.json
# The commit gets a work tree and an installation of its own, once, below $EDGE0VERIFY_BASE.
set -euo pipefail
commit=$1 cell=$2 out=$3
root=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)
place=${EDGE0VERIFY_BASE:-${XDG_CACHE_HOME:-$HOME/.cache}/edge0verify/base}/$commit
if [ ! -e "$place/.installed" ]; then
    git -C "$root" worktree prune
    rm -rf "$place"
    git -C "$root" worktree add --quiet --detach "$place" "$commit" >&2
    make -C "$place" install >&2
    touch "$place/.installed"
fi
# The path of the run that asks would put its own package before that of the commit.
cd "$place"
PYTHONPATH=$place exec .venv/bin/python -m edge0verify.nightly.child "$cell" "$out"
