# Sourced by contrib/quickstart.sh and test/run.sh: which Debian packages are missing, and their
# installation. The caller has set $uid.
# shellcheck shell=sh

packages_build="autoconf automake make pkg-config libevent-dev libssl-dev libpq-dev libpcre2-dev uthash-dev"

package_installed() {
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# packages_missing NAME...: prints those that are not installed.
packages_missing() {
	missing=
	for p; do
		package_installed "$p" && continue
		[ "$p" = pkg-config ] && package_installed pkgconf && continue
		missing="$missing $p"
	done
	echo "${missing# }"
}

# Sets pg_bin to the newest PostgreSQL server, 13 or later, that is installed. QB_PG_BIN: another one.
find_postgres() {
	pg_bin=${QB_PG_BIN:-}
	[ -z "$pg_bin" ] || return 0
	for d in $(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -t/ -k5 -rn); do
		v=${d#/usr/lib/postgresql/}
		v=${v%/bin}
		case $v in *[!0-9]*) continue ;; esac
		if [ "$v" -ge 13 ] && [ -x "$d/initdb" ] && [ -x "$d/postgres" ] && [ -x "$d/psql" ]; then
			pg_bin=$d
			return 0
		fi
	done
	return 1
}

# postgres_version BIN: "15.18", of the programs in this directory.
postgres_version() { "$1/postgres" --version 2>/dev/null | sed 's/.*) \([0-9.]*\).*/\1/'; }

as_root() {
	if [ "$uid" -eq 0 ]; then
		"$@"
	elif command -v sudo >/dev/null 2>&1; then
		sudo "$@"
	else
		echo "needs root or sudo: $*" >&2
		return 1
	fi
}

# Debian's server package makes and starts a cluster "main" when it is first installed. Ours live in
# directories of their own, so for the time of the installation it is told not to.
no_main_cluster=/etc/postgresql-common/createcluster.d/qbouncer.conf

main_cluster_forbid() {
	as_root mkdir -p "$(dirname $no_main_cluster)"
	echo 'create_main_cluster = false' | as_root tee $no_main_cluster >/dev/null
}

main_cluster_allow() {
	as_root rm -f $no_main_cluster
	as_root rmdir "$(dirname $no_main_cluster)" 2>/dev/null || true # if nobody else uses it
}

# packages_install LOG NAME...: installs what of the names is missing. The package lists are updated
# once if that is what it takes.
packages_install() {
	packages_log=$1
	shift
	# shellcheck disable=SC2046
	set -- $(packages_missing "$@")
	[ $# -gt 0 ] || return 0
	main_cluster_forbid || return 1
	packages_try "$@" || {
		as_root apt-get -o DPkg::Lock::Timeout=120 update </dev/null >>"$packages_log" 2>&1 &&
			packages_try "$@"
	} || {
		main_cluster_allow
		return 1
	}
	main_cluster_allow
}

# slapd is for tests that start their own: it makes no directory and serves nobody.
packages_try() {
	case " $* " in *' slapd '*)
		echo 'slapd slapd/no_configuration boolean true' | as_root debconf-set-selections
		;;
	esac
	as_root env DEBIAN_FRONTEND=noninteractive \
		apt-get -o DPkg::Lock::Timeout=120 install -y --no-install-recommends "$@" \
		</dev/null >>"$packages_log" 2>&1
}
