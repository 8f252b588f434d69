#!/bin/sh
# Checks that the sources are as .clang-format wants them.
#
#   dev/format.sh          fails when a file is not
#   dev/format.sh --fix    formats them
set -eu
cd "$(dirname "$0")/.."
: "${CLANG_FORMAT:=clang-format}"
command -v "$CLANG_FORMAT" >/dev/null || {
	echo "format.sh: $CLANG_FORMAT is missing (Debian: clang-format)" >&2
	exit 1
}
mode='--dry-run -Werror'
[ "${1:-}" = --fix ] && mode=-i

# include/ and the tables are laid out by hand: columns and one-line rows carry meaning there.
jobs=$(nproc 2>/dev/null || echo 2)
# shellcheck disable=SC2086
find src test -name '*.c' -type f | sort | xargs -n 8 -P "$jobs" "$CLANG_FORMAT" --style=file $mode
echo "format: done"
