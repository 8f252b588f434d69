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
	command -v npm >/dev/null 2>&1 &&
		timeout 240 npm ci --no-audit --no-fund --fetch-retries=1 --prefix "$out/node" && return
	# Without npm, or what it would fetch, the driver that Debian has.
	[ -d /usr/share/nodejs/pg ] && rm -rf "$out/node/node_modules" && mkdir "$out/node/node_modules" &&
		ln -sfn /usr/share/nodejs/* "$out/node/node_modules/"
}

java_program() {
	mkdir -p "$out/java"
	# ecj first: where it is the only one it is also called javac, with another language than a JDK's
	if command -v ecj >/dev/null 2>&1; then
		ecj -source 17 -target 17 -proc:none -nowarn -d "$out/java" "$here/java/Jdbc.java"
	else
		javac -d "$out/java" "$here/java/Jdbc.java"
	fi
}

# With Debian's own compiler and libraries, whatever else is in PATH.
go_program() {
	name=$1
	mkdir -p "$out/go"
	GO111MODULE=off GOFLAGS='' GOTOOLCHAIN=local GOPATH=/usr/share/gocode GOCACHE="$out/go/cache" \
		/usr/bin/go build -o "$out/go/$name" "$here/go/runner.go" "$here/go/$name.go"
}

rust_program() {
	mkdir -p "$out/rust"
	cp -R "$here/rust/Cargo.toml" "$here/rust/src" "$out/rust/"
	cd "$out/rust" || return
	PATH=/usr/bin:/bin CARGO_HOME=$out/rust/home CARGO_TARGET_DIR=$out/rust/target \
		/usr/bin/cargo --offline --config 'source.crates-io.replace-with="debian"' \
		--config 'source.debian.directory="/usr/share/cargo/registry"' build
}

c_program() {
	mkdir -p "$out/c"
	cc -Wall -O1 -D_GNU_SOURCE -I"$(pg_config --includedir)" -o "$out/c/libpq" "$here/c/libpq.c" -lpq
}

cxx_program() {
	mkdir -p "$out/c"
	c++ -Wall -Wno-deprecated-declarations -O0 -o "$out/c/pqxx" "$here/c/pqxx.cc" -lpqxx -lpq -pthread
}

# The longest first; the others beside it.
part rust rust_program &
part node node_modules &
part go-sql go_program sql
part go-pgx go_program pgx
part java java_program
part c c_program
part c++ cxx_program
wait
