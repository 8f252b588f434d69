#!/bin/sh
# Runs parts of the tests with the PostgreSQL of another release of Debian, in a folder of its own made by
# debootstrap. Needs root, Debian, and 2 GB for each. What is committed is tested; with -s, what is in the tree.
#
#   sh dev/suite.sh trixie [PART...]         all of that release: compiler, libraries, PostgreSQL 17
#   sh dev/suite.sh sid [PART...]            what is newest
#   sh dev/suite.sh -s bullseye [PART...]    only the server is that release's: PostgreSQL 13. For releases
#                                            older than this machine's
#
# Parts of test/run.sh; sql and it unless given. QB_SUITES: where the folders are (build/suites).
# QB_MIRROR: an archive of Debian, otherwise debootstrap's own choice. QB_JOBS, PYTEST_ARGS: as in test/run.sh.
# The last results are in doc/postgres.md.
set -eu
# What is mounted in the folder is seen by this run alone, and gone with it, however it ends.
[ -n "${QB_OWN_MOUNTS:-}" ] || exec env QB_OWN_MOUNTS=1 unshare --mount sh "$0" "$@"
server_only=
[ "${1:-}" = -s ] && { server_only=1; shift; }
repo=$(cd "$(dirname "$0")/.." && pwd)
suite=${1:?"which suite? trixie, sid, -s bullseye"}
shift
[ $# -gt 0 ] || set -- sql it
[ "$(id -u)" -eq 0 ] || { echo "suite.sh: needs root" >&2; exit 1; }
command -v debootstrap >/dev/null 2>&1 ||
	DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends debootstrap
home=${QB_SUITES:-$repo/build/suites}
root=$home/$suite

if [ ! -f "$root/.complete" ]; then
	rm -rf --one-file-system "$root"
	mkdir -p "$root"
	debootstrap --variant=minbase --include=ca-certificates,git,procps "$suite" "$root" \
		${QB_MIRROR:+"$QB_MIRROR"}
	touch "$root/.complete"
fi
cp /etc/resolv.conf "$root/etc/resolv.conf"

for m in proc dev; do
	mount --rbind "/$m" "$root/$m"
done

inside() {
	chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb \
		DEBIAN_FRONTEND=noninteractive QB_JOBS="${QB_JOBS:-2}" PYTEST_ARGS="${PYTEST_ARGS:-}" "$@"
}

if [ -z "$server_only" ]; then
	rm -rf "$root/qbouncer"
	git -c safe.directory='*' clone -q "$repo" "$root/qbouncer"
	inside sh /qbouncer/test/run.sh "$@"
	exit
fi

# A server finds its files beside itself, wherever it is; libraries that this machine lacks go with it.
mkdir -p "$root/etc/postgresql-common/createcluster.d" "$root/libs"
echo 'create_main_cluster = false' >"$root/etc/postgresql-common/createcluster.d/qbouncer.conf"
inside apt-get install -y --no-install-recommends postgresql postgresql-contrib >/dev/null
bin=$(ls -d "$root"/usr/lib/postgresql/*/bin)
round=
while [ "$round" != xxx ]; do # libraries of libraries
	round=x$round
	missing=$(LD_LIBRARY_PATH=$root/libs ldd "$bin"/* "$bin"/../lib/*.so "$root"/libs/* 2>/dev/null |
		sed -n 's/^[ \t]*\([^ ]*\) => not found.*/\1/p' | sort -u)
	for l in $missing; do
		found=$(find "$root/usr/lib" "$root/lib/" -name "$l" | head -n 1)
		[ -z "$found" ] || cp -L "$found" "$root/libs/$l"
	done
done
QB_PG_BIN=$bin LD_LIBRARY_PATH=$root/libs sh "$repo/test/run.sh" "$@"
