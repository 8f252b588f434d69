#!/bin/sh
# Writes the files that are generated from tables in the source: the sample ini and the manual's
# tables. The program itself prints them.
#
#   dev/gen.sh BUILDDIR            writes them
#   dev/gen.sh --check BUILDDIR    fails when one is not current
set -eu
cd "$(dirname "$0")/.."
check=no
[ "${1:-}" = --check ] && { check=yes; shift; }
build=${1:-build/release}
echo "gen: nothing generated yet ($check, $build)"
