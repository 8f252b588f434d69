#!/bin/sh
# Everything that is tested, on a machine that may have none of the packages.
#
#   sh test/run.sh               all parts
#   sh test/run.sh unit it       these parts
#
# Parts: lint build unit scenario sql it drivers fuzz dist deb quickstart
#   lint        lists of files, layers, headers alone, format, generated files, figures of the house
#   build       gcc and clang with -Werror; the other parts build what they need
#   unit        cmocka programs, with ASan and UBSan
#   scenario    dialogues on a fake loop and clock, with ASan and UBSan
#   sql         the functions of sql/ without the proxy
#   it          the proxy with ASan and UBSan before a real Postgres, with real drivers
#   drivers     the conformance suite of drivers; those that cannot be had are named and skipped
#   fuzz        libFuzzer programs, the same runs each time; QB_FUZZ_SECONDS=N: N seconds each, at random
#   dist        make distcheck
#   deb         the Debian package: built, looked into
#   quickstart  contrib/quickstart.sh: start, again, status, stop
#
# dist, deb and quickstart run beside the programs of fuzz, if that is one of the parts.
#
# Builds are in build/NAME. QB_JOBS: parallel jobs. QB_NO_INSTALL=1: do not install packages.
# PYTEST_ARGS: more arguments for pytest, such as "-k cancel -x".
set -u
LC_ALL=C.UTF-8
export LC_ALL
unset PGHOST PGPORT PGUSER PGDATABASE PGPASSWORD PGSERVICE PGOPTIONS PGDATA

repo=$(cd "$(dirname "$0")/.." && pwd)
cd "$repo" || exit 1
uid=$(id -u)
jobs=${QB_JOBS:-$(nproc 2>/dev/null || echo 2)}
logs=$repo/build/logs
python=/usr/bin/python3
mkdir -p "$logs"
# What distcheck compiles is what the build with gcc has compiled.
ccache_used() {
	[ -d /usr/lib/ccache ] || return 0
	PATH=/usr/lib/ccache:$PATH
	CCACHE_BASEDIR=${CCACHE_BASEDIR:-$repo} CCACHE_NOHASHDIR=1
	CCACHE_DIR=${CCACHE_DIR:-${HOME:-$repo/build}/.cache/ccache}
	export PATH CCACHE_BASEDIR CCACHE_NOHASHDIR CCACHE_DIR
}
# shellcheck source=dev/packages.sh
. "$repo/dev/packages.sh"

ASAN_OPTIONS=${ASAN_OPTIONS-detect_leaks=1:abort_on_error=0:exitcode=99}
UBSAN_OPTIONS=${UBSAN_OPTIONS-print_stacktrace=1}
QB_SRCDIR=$repo
export ASAN_OPTIONS UBSAN_OPTIONS QB_SRCDIR

passed=0 failed=0 skipped=0 failures='' by_chance=''

# --- counting -------------------------------------------------------------------------------------

head_line() { printf '\n=== %s (%s s)\n' "$*" "$(($(date +%s) - started))"; }

ok() { passed=$((passed + 1)); }

not_ok() {
	failed=$((failed + 1))
	failures="$failures
  FAILED $1"
	printf 'FAILED %s\n' "$1"
}

# check NAME COMMAND...: one test; its output is shown when it fails.
check() {
	check_name=$1
	check_log=$logs/$(echo "$check_name" | tr ' /:' '___').log
	shift
	if "$@" >"$check_log" 2>&1 </dev/null; then
		ok
		printf 'ok     %s\n' "$check_name"
	else
		tail -n 60 "$check_log"
		not_ok "$check_name"
		return 1
	fi
}

# add_counts PASSED FAILED SKIPPED NAME: what a runner counted itself.
add_counts() {
	passed=$((passed + ${1:-0}))
	skipped=$((skipped + ${3:-0}))
	if [ "${2:-0}" -gt 0 ]; then
		failed=$((failed + $2))
		failures="$failures
  FAILED $2 in $4"
	fi
}

# number FILE PATTERN: the last number that stands where \1 of the sed pattern is.
number() { sed -n "s/.*$2.*/\\1/p" "$1" | tail -n 1; }

# --- packages and builds --------------------------------------------------------------------------

# install_packages PART...: what these parts need.
install_packages() {
	[ -z "${QB_NO_INSTALL:-}" ] || return 0
	command -v apt-get >/dev/null 2>&1 || return 0
	wanted="$packages_build gcc libc6-dev libcmocka-dev libsystemd-dev libidn-dev libpam0g-dev libldap-dev git openssl groff-base postgresql
		postgresql-contrib postgresql-client python3 python3-pytest python3-pytest-xdist
		python3-pytest-timeout python3-psycopg python3-psycopg2 python3-croniter procps"
	case " $* " in *' lint '* | *' build '* | *' fuzz '*)
		wanted="$wanted clang clang-format libclang-rt-14-dev"
		;;
	esac
	case " $* " in *' it '*) wanted="$wanted slapd libpam-modules" ;; esac
	case " $* " in *' deb '*) wanted="$wanted build-essential debhelper" ;; esac
	case " $* " in *' dist '*) wanted="$wanted ccache" ;; esac
	# shellcheck disable=SC2086
	missing=$(packages_missing $wanted)
	[ -n "$missing" ] || return 0
	head_line "packages: $missing"
	# shellcheck disable=SC2086
	packages_install "$logs/packages.log" $missing || {
		tail -n 20 "$logs/packages.log"
		not_ok "installation of packages: $missing"
	}
}

# configured NAME OPTION...: a build directory build/NAME; anew when the options changed.
configured() {
	dir=$repo/build/$1
	shift
	[ -f "$dir/Makefile" ] && [ "$(cat "$dir/.options" 2>/dev/null)" = "$*" ] && return 0
	# neither what configure remembers nor what was compiled with other options is of use
	[ ! -f "$dir/.options" ] || rm -rf "$dir"
	mkdir -p "$dir"
	(cd "$dir" && "$repo/configure" -C -q "$@") && echo "$*" >"$dir/.options"
}

# build NAME OPTION...: configures and builds build/NAME, tests included.
build() {
	make_in "$@" && make -C "$repo/build/$1" -s -j"$jobs" check TESTS=
}

# make_in NAME OPTION...: without the tests.
make_in() {
	name=$1
	[ -x "$repo/configure" ] || ./autogen.sh || return 1
	configured "$@" || return 1
	make -C "$repo/build/$name" -s -j"$jobs" all
}

have_build=''
need_build() {
	case " $have_build " in *" $1 "*) return 0 ;; esac
	case $1 in
	gcc) check "build with gcc -Werror" build gcc CC=gcc --enable-werror ;;
	# for its warnings, which need no optimiser; nothing of it is run
	clang) check "build with clang -Werror" build clang CC=clang CFLAGS=-O0 --enable-werror ;;
	asan) check "build with ASan and UBSan" build asan CC=gcc --enable-werror --enable-asan ;;
	fuzz) check "build of the fuzz targets" make_in fuzz CC=clang --enable-werror --enable-fuzz ;;
	esac || return 1
	have_build="$have_build $1"
}

# Each of thousands of tests makes a database, which nobody needs afterwards: in memory, where there is room for them.
postgres_in_memory() {
	[ -z "${QB_PG_DIR:-}" ] && [ -w /dev/shm ] || return 0
	room=$(df -Pm /dev/shm 2>/dev/null | awk 'NR == 2 && $1 == "tmpfs" { print $4 }')
	memory=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo 2>/dev/null)
	[ "${room:-0}" -ge 6000 ] && [ "${memory:-0}" -ge 8000 ] || return 0
	QB_PG_DIR=/dev/shm
	export QB_PG_DIR
}

# --- parts ----------------------------------------------------------------------------------------

part_lint() {
	check "lint: list of sources" sh dev/sources.sh --check
	check "lint: layers" sh dev/layers.sh
	check "lint: headers alone" sh dev/headers.sh
	check "lint: secrets" sh dev/secrets.sh
	check "lint: links of the documentation" sh dev/links.sh
	check "lint: names in the map" sh dev/names.sh
	check "lint: format" sh dev/format.sh
	need_build gcc || return
	check "lint: generated files" sh dev/gen.sh --check "$repo/build/gcc"
	check "lint: house" sh dev/house.sh "$repo/build/gcc" && cat "$logs/lint__house.log"
}

part_build() {
	need_build gcc
	need_build clang
}

part_unit() {
	need_build asan || return
	total=0 bad=0
	units=$(find build/asan/test/unit -maxdepth 1 -type f -name 'test_*' -perm -u=x | sort)
	# shellcheck disable=SC2016
	echo "$units" | xargs -P "$jobs" -I '{}' sh -c \
		'l=$2/${1##*/}.log; CMOCKA_MESSAGE_OUTPUT=stdout "$1" >"$l" 2>&1 </dev/null; echo $? >"$l.code"' unit '{}' "$logs"
	for t in $units; do
		log=$logs/$(basename "$t").log
		code=$(cat "$log.code")
		p=$(number "$log" '\[  PASSED  \] \([0-9]*\) test')
		f=$(number "$log" '\[  FAILED  \] \([0-9]*\) test')
		total=$((total + ${p:-0}))
		bad=$((bad + ${f:-0}))
		if [ "$code" -eq 0 ]; then
			printf 'ok     %s: %s tests\n' "$(basename "$t")" "${p:-0}"
		else
			cat "$log"
			[ "${f:-0}" -gt 0 ] || bad=$((bad + 1)) # it crashed, or leaked
		fi
	done
	printf '[==========] unit: %s test(s) run.\n[  PASSED  ] %s test(s).\n' $((total + bad)) $total
	add_counts $total $bad 0 "unit"
}

part_scenario() {
	need_build asan || return
	runner=build/asan/test/scenario/scenario
	if [ ! -x $runner ]; then
		not_ok "scenario: $runner was not built"
		return
	fi
	log=$logs/scenario.log
	# less is remembered of what was allocated and freed: a replay is short, and is had again with more
	find test/scenario -name '*.dlg' | sort |
		ASAN_OPTIONS="$ASAN_OPTIONS:malloc_context_size=8:quarantine_size_mb=32" xargs -P "$jobs" -n 1 $runner >"$log" 2>&1
	code=$?
	p=$(grep -c '^ok ' "$log")
	f=$(grep -c '^FAIL ' "$log")
	grep '^ok ' "$log" | sort
	if [ $code -ne 0 ]; then
		grep -v '^ok ' "$log" | head -n 200
		[ "$f" -gt 0 ] || f=1
	fi
	add_counts "$p" "$f" 0 "scenario"
	printf 'scenario: %s dialogues passed, %s failed\n' "$p" "$f"
}

# pytest_counts LOG: sets p, bad and s: passed, failed or in error, skipped.
pytest_counts() {
	last=$(grep -E '(passed|failed|error|no tests ran|skipped).* in [0-9.]+' "$1" | tail -n 1)
	p=$(echo "$last" | sed -n 's/.*[^0-9]*\b\([0-9][0-9]*\) passed.*/\1/p')
	f=$(echo "$last" | sed -n 's/.*\b\([0-9][0-9]*\) failed.*/\1/p')
	e=$(echo "$last" | sed -n 's/.*\b\([0-9][0-9]*\) error.*/\1/p')
	s=$(echo "$last" | sed -n 's/.*\b\([0-9][0-9]*\) skipped.*/\1/p')
	bad=$((${f:-0} + ${e:-0}))
}

# run_pytest NAME DIR OPTION...
# A test in thousands that fails by chance is a fault, but of the test more often than of what it tests. Up to
# QB_AGAIN (2) that fail are run once more, alone. Those that pass then are named at the end, to be mended.
run_pytest() {
	name=$1 what=$2
	shift 2
	log=$logs/$name.log
	rm -rf "$logs/failed-$name"
	# shellcheck disable=SC2086
	$python -m pytest -o cache_dir="$logs/failed-$name" -rfE --color=no --timeout=60 "$what" "$@" ${PYTEST_ARGS:-} \
		>"$log" 2>&1 </dev/null
	code=$?
	pytest_counts "$log"
	if [ $code -eq 0 ]; then
		tail -n 3 "$log"
	else
		tail -n "${QB_LOG_LINES:-400}" "$log"
		[ $bad -gt 0 ] || bad=1
		# 1: tests have failed; other codes are of pytest itself
		[ $code -eq 1 ] && [ $bad -le "${QB_AGAIN:-2}" ] && again_pytest "$@"
	fi
	add_counts "${p:-0}" "$bad" "${s:-0}" "$name"
}

# Sets p and bad as they are with those that have failed run once more.
again_pytest() {
	passed_before=${p:-0} bad_before=$bad skipped_before=${s:-0}
	printf '\n--- %s of %s run again, alone\n' "$bad" "$name"
	$python -m pytest -o cache_dir="$logs/failed-$name" --lf --lfnf=none -rfEp --color=no --timeout=60 "$what" "$@" -n 0 \
		>"$log.again" 2>&1 </dev/null
	code=$?
	pytest_counts "$log.again"
	if [ $code -eq 0 ] && [ "${p:-0}" -eq "$bad_before" ]; then
		tail -n 3 "$log.again"
		by_chance="$by_chance
$(sed -n 's/^PASSED /  BY CHANCE failed and then passed: /p' "$log.again")"
		p=$((passed_before + bad_before)) bad=0
	else
		tail -n 100 "$log.again"
		p=$passed_before bad=$bad_before
	fi
	s=$skipped_before
}

part_sql() {
	run_pytest sql test/sql -n "$((jobs + 1))"
}

# The driver `pg` of Node: from npm where there is one, else from Debian. Without it its test is skipped.
node_driver() {
	[ -d build/node/node_modules/pg ] || [ -d /usr/share/nodejs/pg ] && return
	if command -v node >/dev/null 2>&1 && command -v npm >/dev/null 2>&1; then
		mkdir -p build/node
		timeout 120 npm install --no-audit --no-fund --prefix build/node pg@8 \
			>"$logs/npm.log" 2>&1 </dev/null || echo "npm could not install pg: $logs/npm.log"
	elif [ -z "${QB_NO_INSTALL:-}" ]; then
		packages_install "$logs/packages.log" nodejs node-pg || echo "no Node driver: its test is skipped"
	fi
}

part_it() {
	need_build asan || return
	node_driver
	# they wait more than they work
	QB_BUILD=$repo/build/asan run_pytest it test/it -n "$((jobs + 1))" --ignore=test/it/drivers
}

# Before anything runs: an installation may bring a newer PostgreSQL with it. All at once; if that fails, one by
# one. What is missing then is skipped by name.
drivers_packages() {
	[ -z "${QB_NO_INSTALL:-}" ] && command -v apt-get >/dev/null 2>&1 || return 0
	missing=$(sh test/it/drivers/packages.sh)
	# shellcheck disable=SC2046,SC2086
	missing=$(packages_missing $missing)
	[ -n "$missing" ] || return 0
	head_line "packages: $missing"
	# shellcheck disable=SC2086
	packages_install "$logs/packages.log" $missing && return
	for p in $missing; do
		packages_try "$p" || echo "no package $p"
	done
}

part_drivers() {
	need_build asan || return
	sh test/it/drivers/build.sh "$repo/build/drivers"
	QB_BUILD=$repo/build/asan run_pytest drivers test/it/drivers -n "$((jobs + 1))" --dist loadgroup --timeout=120
	grep -E '^(drivers:|  missing:)' "$logs/drivers.log"
}

# How often each is run: what takes about 20 seconds of CPU.
fuzz_runs() {
	case $1 in
	startup) echo 5000000 ;;
	frontend) echo 2500000 ;;
	scram) echo 1500000 ;;
	backend) echo 1500000 ;;
	console) echo 800000 ;;
	queue) echo 700000 ;;
	json) echo 600000 ;;
	access) echo 500000 ;;
	sqllex) echo 450000 ;;
	tls) echo 100000 ;;
	ini) echo 70000 ;;
	*) echo 100000 ;;
	esac
}

fuzz_options='-timeout=10 -rss_limit_mb=2048 -print_final_stats=1'

# The same commit has the same result: seed, number of runs, order of the corpus and addresses are
# given, values that were compared (of clocks, of keys) are not used, what was found before is left
# out. On a machine that is so slow that time is up before, what was run was good.
fuzz_fixed() {
	new=$(mktemp -d) || return 1
	fixed=''
	setarch -R true 2>/dev/null && fixed='setarch -R'
	seeds=$(printf '%s,' test/fuzz/corpus/"$name"/*)
	# shellcheck disable=SC2086
	$fixed "$t" -seed=1 -runs="$(fuzz_runs "$name")" -max_total_time=120 -reload=0 -use_cmp=0 $fuzz_options \
		-artifact_prefix="build/fuzz/fuzz_$name-" $dict -seed_inputs="${seeds%,}" "$new"
	code=$?
	rm -rf "$new"
	return $code
}

# What is found is kept in build/fuzz/corpus and used the next time.
fuzz_random() {
	new=build/fuzz/corpus/fuzz_$name
	mkdir -p "$new"
	# shellcheck disable=SC2086
	"$t" -max_total_time="$QB_FUZZ_SECONDS" $fuzz_options -artifact_prefix="build/fuzz/fuzz_$name-" $dict \
		"$new" "test/fuzz/corpus/$name"
}

# fuzz_lane TARGET...: those that no other lane has begun.
fuzz_lane() {
	for t; do
		name=${t##*/fuzz_}
		mkdir "$logs/fuzz_begun/$name" 2>/dev/null || continue
		dict=''
		[ -f "test/fuzz/$name.dict" ] && dict="-dict=test/fuzz/$name.dict"
		if [ -n "${QB_FUZZ_SECONDS:-}" ]; then
			fuzz_random >"$logs/fuzz_$name.log" 2>&1 </dev/null
		else
			fuzz_fixed >"$logs/fuzz_$name.log" 2>&1 </dev/null
		fi
		echo $? >"$logs/fuzz_begun/$name/code"
	done
}

# As many lanes as there are processors.
part_fuzz() {
	need_build fuzz
	built=$?
	begin_beside
	[ $built -eq 0 ] || return
	rm -rf "$logs/fuzz_begun"
	mkdir "$logs/fuzz_begun"
	# shellcheck disable=SC2046
	set -- $(find build/fuzz/test/fuzz -maxdepth 1 -type f -name 'fuzz_*' -perm -u=x | sort)
	[ $# -gt 0 ] || not_ok "fuzz: no targets were built"
	lanes=''
	for n in $(seq "$jobs"); do
		fuzz_lane "$@" &
		lanes="$lanes $!"
	done
	# shellcheck disable=SC2086
	wait $lanes
	for t; do
		name=${t##*/fuzz_}
		if [ "$(cat "$logs/fuzz_begun/$name/code")" = 0 ]; then
			ok
			printf 'ok     fuzz_%s: %s runs\n' "$name" "$(number "$logs/fuzz_$name.log" 'stat::number_of_executed_units: *\([0-9]*\)')"
		else
			tail -n 40 "$logs/fuzz_$name.log"
			not_ok "fuzz_$name"
		fi
	done
}

# The dialogues as they are written: part_scenario has played what can go wrong in them.
part_dist() {
	need_build gcc && check "make distcheck" make -C build/gcc -s -j"$jobs" distcheck DLG_LOG_FLAGS=-1 \
		DISTCHECK_CONFIGURE_FLAGS="CC=gcc --enable-werror"
}

part_deb() {
	if ! command -v dh >/dev/null 2>&1; then
		skipped=$((skipped + 1))
		echo "skip   Debian package: debhelper is not installed"
		return
	fi
	check "Debian package" sh dev/deb.sh build/deb
}

# Sets other_bin: the installed PostgreSQL, which says that it is of another minor version. Where its user may read.
another_minor() {
	find_postgres && other_bin=$(mktemp -d) || return 1
	ln -s "$pg_bin"/* "$other_bin" && rm "$other_bin/postgres"
	printf '#!/bin/sh\n[ "$1" = --version ] && echo "postgres (PostgreSQL) %s.99" && exit\nexec "%s/postgres" "$@"\n' \
		"$(postgres_version "$pg_bin" | sed 's/[.].*//')" "$pg_bin" >"$other_bin/postgres"
	chmod 755 "$other_bin" "$other_bin/postgres"
}

upgraded_quickstart() {
	QB_PG_BIN=$other_bin sh contrib/quickstart.sh >"$logs/upgraded.log" 2>&1
	code=$?
	rm -rf "$other_bin"
	cat "$logs/upgraded.log"
	[ $code -eq 0 ] && grep -q 'PostgreSQL was upgraded from .* to .*[.]99: it is started anew' "$logs/upgraded.log"
}

part_quickstart() {
	QB_QUICKSTART_DIR=$(mktemp -u "${TMPDIR:-/tmp}/qbouncer-quickstart-test-XXXXXX")
	export QB_QUICKSTART_DIR
	check "quickstart" sh contrib/quickstart.sh && cat "$logs/quickstart.log"
	check "quickstart again" sh contrib/quickstart.sh
	another_minor && check "quickstart after an upgrade of PostgreSQL" upgraded_quickstart
	check "quickstart status" sh contrib/quickstart.sh status
	check "quickstart stop" sh contrib/quickstart.sh stop
	check "quickstart leaves nothing" test ! -e "$QB_QUICKSTART_DIR"
}

# --- side by side ----------------------------------------------------------------------------------

# What configures, links and packs needs one processor, and leaves the other one to programs of fuzz, which need one each.
# In the background, one part after the other: what they print and count is kept until end_beside.
beside_pid=''
begin_beside() {
	[ -n "$beside" ] || return 0
	rm -f "$logs/beside.counts"
	(
		passed=0 failed=0 skipped=0 failures=''
		for part in $beside; do
			head_line "$part"
			"part_$part"
		done
		echo "$failures" >"$logs/beside.failures"
		echo "$passed $failed $skipped" >"$logs/beside.counts"
	) >"$logs/beside.log" 2>&1 &
	beside_pid=$!
}

end_beside() {
	wait "$beside_pid"
	beside_pid=''
	cat "$logs/beside.log"
	if [ -f "$logs/beside.counts" ]; then
		read -r p f s <"$logs/beside.counts"
		passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
		failures="$failures$(cat "$logs/beside.failures")"
	else
		not_ok "what runs beside fuzz:$beside"
	fi
}

# --- main -----------------------------------------------------------------------------------------

started=$(date +%s)
all="build lint unit scenario sql it drivers fuzz dist deb quickstart"
[ $# -gt 0 ] || set -- $all
for part; do
	case " $all " in *" $part "*) ;; *)
		echo "run.sh: no part named $part; there are: $all" >&2
		exit 2
		;;
	esac
done
install_packages "$@"
ccache_used
case " $* " in *' drivers '*) drivers_packages ;; esac
find_postgres || pg_bin=''
postgres_in_memory
before=$(postgres_version "$pg_bin")
beside=''
case " $* " in *' fuzz '*)
	for part; do
		case $part in dist | deb | quickstart) beside="$beside $part" ;; esac
	done
	;;
esac
for part; do
	case " $beside " in *" $part "*) continue ;; esac
	head_line "$part"
	"part_$part"
	[ -z "$beside_pid" ] || end_beside
done
after=$(postgres_version "$pg_bin")

head_line "done"
[ "$before" = "$after" ] || printf 'PostgreSQL was upgraded from %s to %s during this run: servers that ran then may have failed. Run it again.\n\n' \
	"$before" "$after"
[ -z "$by_chance" ] || printf '%s\n\n' "${by_chance#?}"
[ -z "$failures" ] || printf '%s\n\n' "${failures#?}"
if [ "$skipped" -gt 0 ]; then
	printf '%s passed, %s failed, %s skipped\n' $passed $failed $skipped
else
	printf '%s passed, %s failed\n' $passed $failed
fi
[ $failed -eq 0 ] && [ $passed -gt 0 ]
