#!/bin/sh
# Makes ./configure from configure.ac and Makefile.am.
set -e
cd "$(dirname "$0")"
for tool in autoreconf automake pkg-config; do
	command -v $tool >/dev/null 2>&1 || {
		echo "autogen.sh: $tool is missing" >&2
		echo "  On Debian and Ubuntu:  apt-get install autoconf automake pkg-config" >&2
		exit 1
	}
done
exec autoreconf --install --force
