#!/bin/sh
# From a fresh Debian to a queue that works, in one command. Apart from packages it writes
# only to the build directory of this repository and to one directory of its own.
#
#   sh contrib/quickstart.sh           install what is missing, build, start, show, connect
#   sh contrib/quickstart.sh status    what runs, and how to connect
#   sh contrib/quickstart.sh stop      end both servers, remove the directory
#
# Environment: QB_QUICKSTART_DIR, where the throw-away cluster lives; QB_BUILD, the build directory;
# QB_PG_BIN, where PostgreSQL's programs are, if not in /usr/lib/postgresql.
set -eu
LC_ALL=C.UTF-8
export LC_ALL
unset PGHOST PGPORT PGUSER PGDATABASE PGPASSWORD PGSERVICE PGOPTIONS PGDATA

repo=$(cd "$(dirname "$0")/.." && pwd)
uid=$(id -u)
dir=${QB_QUICKSTART_DIR:-${TMPDIR:-/tmp}/qbouncer-quickstart-$uid}
build=${QB_BUILD:-$repo/build/release}
first_port=6432
run_user=$(id -un)
[ "$uid" -ne 0 ] || run_user=postgres # neither server runs as root
# shellcheck source=dev/packages.sh
. "$repo/dev/packages.sh"

# --- saying things --------------------------------------------------------------------------------

bold='' plain=''
if [ -t 1 ]; then
	bold=$(printf '\033[1m') plain=$(printf '\033[0m')
fi

step() { printf '%s==> %s%s\n' "$bold" "$*" "$plain"; }
say() { printf '    %s\n' "$*"; }

# die MESSAGE [LINE...]
die() {
	printf 'quickstart: %s\n' "$1" >&2
	shift
	for line; do
		printf '    %s\n' "$line" >&2
	done
	exit 1
}

# die_log FILE MESSAGE...: with the end of the log that says why.
die_log() {
	if [ -s "$1" ]; then
		printf -- '--- the end of %s\n' "$1" >&2
		tail -n 20 "$1" >&2
		printf -- '---\n' >&2
	fi
	shift
	die "$@"
}

# As the unprivileged user that owns the cluster, from a directory that it may enter.
as_user() {
	if [ "$uid" -eq 0 ]; then
		(cd / && exec runuser -u "$run_user" -- "$@")
	else
		(cd / && exec "$@")
	fi
}

# --- the directory --------------------------------------------------------------------------------

# The name is predictable, so what is there already must be a directory of ours.
make_dir() {
	if [ -e "$dir" ] || [ -L "$dir" ]; then
		[ ! -L "$dir" ] && [ -d "$dir" ] && [ "$(stat -c %u "$dir")" = "$uid" ] ||
			die "$dir exists and is not a directory of yours" \
				"Choose another one: QB_QUICKSTART_DIR=... sh contrib/quickstart.sh"
	else
		mkdir -m 755 "$dir" || die "cannot make the directory $dir"
	fi
	log=$dir/quickstart.log
	: >>"$log"
}

# --- packages, build ------------------------------------------------------------------------------

install_packages() {
	command -v apt-get >/dev/null 2>&1 ||
		die "this is not Debian: there is no apt-get" \
			"Install by hand: a C compiler, autoconf, automake, make, pkg-config, libevent," \
			"OpenSSL, libpq, PCRE2, uthash (with their headers) and PostgreSQL 13 or newer. Then:" \
			"    ./autogen.sh && ./configure && make"
	wanted=$packages_build
	command -v cc >/dev/null 2>&1 || wanted="$wanted gcc libc6-dev"
	find_programs || wanted="$wanted postgresql"
	# shellcheck disable=SC2086
	missing=$(packages_missing $wanted)
	if [ -z "$missing" ]; then
		step "Packages: all there"
		return
	fi
	step "Packages: installing $missing"
	trap 'main_cluster_allow' EXIT
	# shellcheck disable=SC2086
	packages_install "$log" $missing || die_log "$log" "the packages could not be installed" \
		"Wanted: $missing"
	trap - EXIT
	find_programs || die "there is still no PostgreSQL 13 or newer in /usr/lib/postgresql"
}

build_qbouncer() {
	step "Building in $build"
	build_log=$dir/build.log
	if [ -f "$repo/config.status" ]; then
		build=$repo # configured in place: another build directory cannot be beside it
	fi
	{
		[ -x "$repo/configure" ] || (cd "$repo" && ./autogen.sh)
		mkdir -p "$build"
		cd "$build"
		[ -f Makefile ] || "$repo/configure"
		make -j"$(nproc 2>/dev/null || echo 2)"
	} >"$build_log" 2>&1 </dev/null || die_log "$build_log" "the build failed"
	cd "$repo"
	qbouncer=$build/qbouncer
	[ -x "$qbouncer" ] || die_log "$build_log" "the build left no program $qbouncer"
	say "$("$qbouncer" --version | head -n 1)"
}

# --- the cluster ----------------------------------------------------------------------------------

cluster_runs() {
	[ -f "$dir/data/postmaster.pid" ] && as_user "$pg_bin/pg_ctl" -D "$dir/data" status >/dev/null 2>&1
}

# A cluster that is there already needs the programs that made it.
find_programs() {
	made_by=$(cat "$dir/data/PG_VERSION" 2>/dev/null || true)
	if [ -z "${QB_PG_BIN:-}" ] && [ -n "$made_by" ] && [ -x "/usr/lib/postgresql/$made_by/bin/postgres" ]; then
		pg_bin=/usr/lib/postgresql/$made_by/bin
		return
	fi
	find_postgres || return 1
	now=$(postgres_version "$pg_bin")
	[ -z "$made_by" ] || [ "$made_by" = "${now%%.*}" ] ||
		die "$dir/data was made by PostgreSQL $made_by, whose programs are gone" \
			"Remove it and begin again: sh contrib/quickstart.sh stop"
}

# As superuser, on the private socket, past the proxy.
sql_direct() {
	as_user "$pg_bin/psql" -X -q -A -t -v ON_ERROR_STOP=1 -h "$dir/run" -p 5432 -U postgres "$@"
}

start_cluster() {
	if [ ! -f "$dir/data/PG_VERSION" ]; then
		step "Making a throw-away PostgreSQL cluster in $dir/data"
		rm -rf "$dir/data" "$dir/run"
		mkdir -m 700 "$dir/data" "$dir/run"
		[ "$uid" -ne 0 ] || chown "$run_user" "$dir/data" "$dir/run"
		as_user "$pg_bin/initdb" -D "$dir/data" -U postgres -E UTF8 --locale=C.UTF-8 \
			--auth-local=trust --auth-host=scram-sha-256 >>"$log" 2>&1 </dev/null ||
			die_log "$log" "initdb failed"
		as_user tee -a "$dir/data/postgresql.conf" >/dev/null <<END

# quickstart: only a private socket, no network
listen_addresses = ''
port = 5432
unix_socket_directories = '$dir/run'
END
	fi
	now=$(postgres_version "$pg_bin")
	if cluster_runs; then
		# a server whose files were replaced under it cannot load what it needs (plpgsql is one of them)
		running=$(sql_direct -d postgres -c 'SHOW server_version' 2>/dev/null | sed 's/ .*//')
		if [ "$running" = "$now" ]; then
			step "PostgreSQL runs already"
			return
		fi
		step "PostgreSQL was upgraded from ${running:-another version} to $now: it is started anew"
		as_user "$pg_bin/pg_ctl" -D "$dir/data" -w -m fast stop >>"$log" 2>&1 </dev/null ||
			die_log "$log" "PostgreSQL did not stop"
	fi
	step "Starting PostgreSQL $now"
	as_user "$pg_bin/pg_ctl" -D "$dir/data" -l "$dir/run/postgresql.log" -w -t 60 start \
		>>"$log" 2>&1 </dev/null || die_log "$dir/run/postgresql.log" "PostgreSQL does not start"
}

# The role and the database that the demonstration uses. The password is made once.
make_database() {
	if [ ! -f "$dir/password" ]; then
		(umask 077 && od -An -N9 -tx1 /dev/urandom | tr -d ' \n' >"$dir/password")
	fi
	password=$(cat "$dir/password")
	if [ -z "$(sql_direct -d postgres -c "SELECT 1 FROM pg_database WHERE datname = 'app'")" ]; then
		sql_direct -d postgres -c "CREATE ROLE app LOGIN" >>"$log" 2>&1 || true
		sql_direct -d postgres -c "CREATE DATABASE app OWNER app" >>"$log" 2>&1 ||
			die_log "$log" "the database app could not be made"
	fi
}

# --- qbouncer -------------------------------------------------------------------------------------

# Prints the process id of our proxy if it runs.
proxy_pid() {
	[ -s "$dir/run/qbouncer.pid" ] || return 1
	pid=$(head -n 1 "$dir/run/qbouncer.pid")
	tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF "$dir/qbouncer.ini" || return 1
	echo "$pid"
}

proxy_port() { sed -n 's/^listen_port = //p' "$dir/qbouncer.ini" 2>/dev/null; }

set_url() {
	port=$(proxy_port)
	password=$(cat "$dir/password" 2>/dev/null || true)
	url="postgresql://app:$password@127.0.0.1:$port/app"
	console="postgresql://app:$password@127.0.0.1:$port/qbouncer"
}

# Is somebody listening on this TCP port?
port_taken() {
	hex=$(printf '%04X' "$1")
	cat /proc/net/tcp /proc/net/tcp6 2>/dev/null |
		awk -v hex="$hex" '$4 == "0A" && $2 ~ ":" hex "$" { found = 1 } END { exit !found }'
}

write_config() {
	(umask 077 && printf '"app" "%s"\n' "$password" >"$dir/userlist.txt")
	cat >"$dir/qbouncer.ini" <<END
; Written by contrib/quickstart.sh.
[databases]
app = host=$dir/run port=5432 dbname=app

[qbouncer]
listen_addr = 127.0.0.1
listen_port = $1
unix_socket_dir = $dir/run
auth_type = scram-sha-256
auth_file = $dir/userlist.txt
admin_users = app
pool_mode = transaction
logfile = $dir/run/qbouncer.log
pidfile = $dir/run/qbouncer.pid
END
	[ "$uid" -ne 0 ] || chown "$run_user" "$dir/qbouncer.ini" "$dir/userlist.txt"
}

# proxy_answers SECONDS: true as soon as a query comes through.
proxy_answers() {
	tries=$(($1 * 10))
	while [ $tries -gt 0 ]; do
		"$pg_bin/psql" -X -q -A -t "$url" -c 'SELECT 1' >/dev/null 2>"$dir/psql.err" && return 0
		proxy_pid >/dev/null || [ $tries -gt $(($1 * 10 - 10)) ] || return 1
		sleep 0.1
		tries=$((tries - 1))
	done
	return 1
}

start_proxy() {
	if pid=$(proxy_pid); then
		set_url
		if [ -z "$(find "$qbouncer" -newer "$dir/run/qbouncer.pid")" ] && proxy_answers 3; then
			step "qbouncer runs already on port $port"
			return
		fi
		stop_proxy # built anew since, or it does not answer
	fi
	port=$first_port
	while :; do
		while port_taken "$port"; do
			port=$((port + 1))
			[ "$port" -lt $((first_port + 200)) ] || die "no free port from $first_port on"
		done
		write_config "$port"
		set_url
		step "Starting qbouncer on port $port"
		if [ "$uid" -eq 0 ]; then
			set -- -u "$run_user"
		else
			set --
		fi
		"$qbouncer" -d "$@" "$dir/qbouncer.ini" >>"$log" 2>&1 </dev/null || {
			# Somebody was quicker with this port: take the next one.
			port_taken "$port" && ! proxy_pid >/dev/null && port=$((port + 1)) && continue
			die_log "$dir/run/qbouncer.log" "qbouncer does not start" "$(tail -n 3 "$log")"
		}
		break
	done
	proxy_answers 10 || die_log "$dir/run/qbouncer.log" "qbouncer does not answer" \
		"$(cat "$dir/psql.err")"
}

# end_process PID: SIGINT finishes what runs, SIGQUIT and SIGKILL if that takes too long.
end_process() {
	for signal in INT QUIT KILL; do
		kill -s $signal "$1" 2>/dev/null || return 0
		tries=50
		while [ $tries -gt 0 ]; do
			kill -0 "$1" 2>/dev/null || return 0
			sleep 0.1
			tries=$((tries - 1))
		done
	done
}

stop_proxy() {
	if pid=$(proxy_pid); then
		end_process "$pid"
	fi
	rm -f "$dir/run/qbouncer.pid"
}

# --- the demonstration ----------------------------------------------------------------------------

# psql through the proxy, as any client.
client() { "$pg_bin/psql" -X -q -v ON_ERROR_STOP=1 "$url" "$@"; }

# Until the worker's TAKE waits in the proxy (SHOW WAITERS has a row for it).
await_waiter() {
	tries=100
	while [ $tries -gt 0 ]; do
		waiters=$("$pg_bin/psql" -X -q -A -t "$console" -c 'SHOW WAITERS' 2>/dev/null | grep -c . || true)
		[ "$waiters" -gt 0 ] && return 0
		kill -0 "$worker" 2>/dev/null || return 1
		sleep 0.1
		tries=$((tries - 1))
	done
	return 1
}

show() { printf '    %s%s%s %s\n' "$bold" "$1" "$plain" "$2"; }

# One round: a worker waits; another connection pushes inside a transaction. Leaves the time from
# just before COMMIT was sent to the worker's having the row in $latency (milliseconds).
round() {
	t=$dir/demo
	rm -rf "$t"
	mkdir "$t"
	# \gset runs the TAKE and puts the columns of the job into variables; \! notes the time.
	client -f - >"$t/worker" 2>&1 <<END &
QUEUE TAKE demo WAIT '30s' \\gset job_
\\! date +%s%N >$t/received
\\echo :job_id :job_payload
QUEUE DONE :'job_token';
END
	worker=$!
	await_waiter || {
		wait "$worker" || true
		die_log "$t/worker" "the worker's QUEUE TAKE demo WAIT did not come to wait"
	}
	client -f - >"$t/sender" 2>&1 <<END || die_log "$t/sender" "the transaction with the push failed"
BEGIN;
INSERT INTO orders (item) VALUES ('one book');
QUEUE PUSH demo '{"to": "a@example.org"}';
\\! date +%s%N >$t/sent
COMMIT;
END
	wait "$worker" || die_log "$t/worker" "the worker failed"
	[ -s "$t/received" ] || die_log "$t/worker" "the worker got no job"
	latency=$(awk -v a="$(cat "$t/sent")" -v b="$(cat "$t/received")" \
		'BEGIN { printf "%.1f", (b - a) / 1e6 }')
}

demonstrate() {
	step "The queue at work"
	client -c "SET client_min_messages = warning" -c "CREATE TABLE IF NOT EXISTS orders (
		id bigint GENERATED ALWAYS AS IDENTITY, item text)" >>"$log" 2>&1 ||
		die_log "$log" "no table could be made through the proxy"
	client -c 'QUEUE CREATE demo IF NOT EXISTS' >>"$log" 2>&1 ||
		die_log "$log" "QUEUE CREATE failed"
	client -c 'QUEUE PURGE demo' >>"$log" 2>&1 || die_log "$log" "QUEUE PURGE failed"
	round
	first=$latency
	show 'app     ' "QUEUE CREATE demo;"
	show 'worker  ' "QUEUE TAKE demo WAIT '30s';            -- waits in the proxy, holds no server"
	show 'app     ' "BEGIN; INSERT INTO orders ...; QUEUE PUSH demo '{\"to\": \"a@example.org\"}'; COMMIT;"
	show 'worker  ' "  got job $(head -n 1 "$t/worker")"
	show 'worker  ' "QUEUE DONE '<its token>';"
	round
	second=$latency
	round
	say "From COMMIT to the waiting worker, three times: $first, $second, $latency ms."
	say "(From just before COMMIT is sent until the other psql has the row: the commit to disk is"
	say "in it, and so is starting the program \`date\` twice, which reads the clock.)"
	rm -rf "$t"
}

print_howto() {
	cat <<END

  psql      psql '$url'
  Python    python3 -c "import psycopg; c = psycopg.connect('$url', autocommit=True); print(c.execute(\"QUEUE TAKE demo WAIT '30s'\").fetchall())"
  Node      node -e "const c = new (require('pg').Client)('$url'); c.connect().then(() => c.query(\"QUEUE TAKE demo WAIT '30s'\")).then(r => { console.log(r.rows); c.end() })"
  console   psql '$console' -c 'SHOW QUEUES'
  log       $dir/run/qbouncer.log
  stop      sh contrib/quickstart.sh stop

END
}

# --- commands -------------------------------------------------------------------------------------

start() {
	make_dir
	install_packages
	build_qbouncer
	start_cluster
	make_database
	start_proxy
	demonstrate
	step "Ready"
	print_howto
	if [ -t 0 ] && [ -t 1 ]; then
		say "This is psql, through qbouncer. Try:  QUEUE PUSH demo '{\"hello\": \"world\"}';  QUEUE HELP;"
		exec "$pg_bin/psql" -X "$url"
	fi
}

stop() {
	if [ ! -d "$dir" ]; then
		say "nothing to stop: there is no $dir"
		return
	fi
	[ ! -L "$dir" ] && [ "$(stat -c %u "$dir")" = "$uid" ] || die "$dir is not yours"
	find_postgres || die "PostgreSQL's programs are gone from /usr/lib/postgresql"
	if proxy_pid >/dev/null; then
		step "Stopping qbouncer"
		stop_proxy
	fi
	if cluster_runs; then
		step "Stopping PostgreSQL"
		as_user "$pg_bin/pg_ctl" -D "$dir/data" -w -m fast stop >/dev/null ||
			die "PostgreSQL did not stop" "Its directory: $dir/data"
	fi
	rm -rf "$dir"
	step "Removed $dir"
}

status() {
	if [ ! -d "$dir" ]; then
		say "not started: there is no $dir"
		return 3
	fi
	find_postgres || die "PostgreSQL's programs are gone from /usr/lib/postgresql"
	ok=0
	if cluster_runs; then
		say "PostgreSQL runs in $dir/data"
	else
		say "PostgreSQL does not run"
		ok=3
	fi
	if pid=$(proxy_pid); then
		set_url
		say "qbouncer runs as process $pid on port $port"
	else
		say "qbouncer does not run"
		ok=3
	fi
	[ $ok -ne 0 ] || print_howto
	return $ok
}

case ${1:-start} in
start) start ;;
stop) stop ;;
status) status ;;
*)
	sed -n '2,9s/^# \{0,1\}//p' "$0"
	exit 2
	;;
esac
