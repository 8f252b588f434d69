#!/bin/sh
# Writes the files that are generated from tables of the source: etc/qbouncer.ini, doc/config.md,
# doc/console.md, doc/qbouncer.5.
#
#   dev/gen.sh [BUILDDIR]           rewrites them, with the program dev/gen of that build
#   dev/gen.sh --check [BUILDDIR]   fails when one is not current
set -eu
check=
[ "${1:-}" = --check ] && { check=1; shift; }
build=$(cd "${1:-.}" && pwd)
cd "$(dirname "$0")/.."

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
make -s -C "$build" dev/gen >&2
mkdir "$tmp/etc" "$tmp/doc"
"$build/dev/gen" ini >"$tmp/etc/qbouncer.ini"
{ cat dev/config.head.md; "$build/dev/gen" config; } >"$tmp/doc/config.md"
{ cat dev/console.head.md; "$build/dev/gen" console; } >"$tmp/doc/console.md"
{ cat dev/man.head; "$build/dev/gen" man; cat dev/man.tail; } >"$tmp/doc/qbouncer.5"

status=0
for f in etc/qbouncer.ini doc/config.md doc/console.md doc/qbouncer.5; do
	if [ -n "$check" ]; then
		diff -u "$f" "$tmp/$f" || { echo "gen.sh: $f is not current: run dev/gen.sh" >&2; status=1; }
	elif ! cmp -s "$f" "$tmp/$f"; then
		cp "$tmp/$f" "$f"
		echo "$f rewritten"
	fi
done
exit $status
