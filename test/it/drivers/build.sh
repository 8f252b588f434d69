#!/bin/sh
# Compiles and fetches what the programs of the suite need, into a directory:
#
#   sh test/it/drivers/build.sh build/drivers
#
# What cannot be had is told, and its driver is skipped; the suite says so at its end.
set -u
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)

# part NAME COMMAND...: its output is shown when it fails.
part() {
	name=$1
	shift
	if "$@" >"$out/$name.log" 2>&1 </dev/null; then
		echo "built  $name"
	else
		tail -n 15 "$out/$name.log"
		echo "no     $name"
	fi
}

node_modules() {
	mkdir -p "$out/node"
	cmp -s "$here/node/package-lock.json" "$out/node/package-lock.json" && [ -d "$out/node/node_modules/pg" ] &&
		return
	cp "$here/node/package.json" "$here/node/package-lock.json" "$out/node/"
	# Without npm, the driver that Debian has.
	if command -v npm >/dev/null 2>&1; then
		timeout 240 npm ci --no-audit --no-fund --prefix "$out/node"
	elif [ -d /usr/share/nodejs/pg ]; then
		mkdir -p "$out/node/node_modules" && ln -sfn /usr/share/nodejs/* "$out/node/node_modules/"
	fi
}
