#!/bin/sh
# Compiles each header of include/ and src/ alone, so that none relies on what was included before.
# Tables for the preprocessor (no include guard, meant to be included several times) are left out.
set -eu
cd "$(dirname "$0")/.."
: "${CC:=cc}"

one='
header=$1
name=${header#include/}
case $header in src/*) name=../$header ;; esac
grep -q "^#ifndef QB_" "$header" || exit 0
printf "#include \"%s\"\n#include \"%s\"\n" "$name" "$name" |
	$CC -std=gnu11 -D_GNU_SOURCE -Iinclude $QB_HEADER_FLAGS -Wall -Wextra -Werror -fsyntax-only -x c - || {
	echo "headers: $header does not compile alone"
	exit 1
}'

QB_HEADER_FLAGS=$(pkg-config --cflags libpq libevent_core libcrypto 2>/dev/null || true)
export CC QB_HEADER_FLAGS
jobs=$(nproc 2>/dev/null || echo 2)
find include src -name '*.h' -type f | sort | xargs -n 1 -P "$jobs" sh -c "$one" sh
echo "headers: all compile alone"
