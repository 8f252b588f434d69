#!/bin/sh
# Builds the Debian package from what git has, in a folder of its own, and looks into it.
#
#   dev/deb.sh DIR     DIR is emptied; the package and its log are there afterwards
#
# Environment: DEB_BUILD_OPTIONS as for dpkg-buildpackage; "nocheck" unless it is set.
set -eu
out=$1
repo=$(cd "$(dirname "$0")/.." && pwd)

fail() {
	echo "deb.sh: $*" >&2
	exit 1
}

version=$(sed -n 's/^AC_INIT(\[qbouncer\], \[\([^]]*\)\].*/\1/p' "$repo/configure.ac")
grep -q "^qbouncer ($version)" "$repo/debian/changelog" || fail "debian/changelog is not that of version $version"

rm -rf "$out"
mkdir -p "$out/src"
out=$(cd "$out" && pwd)
git -c safe.directory='*' -C "$repo" ls-files -z | (cd "$repo" && xargs -0 cp --parents -t "$out/src")
git -c safe.directory='*' -C "$repo" describe --always --dirty --exclude='*' >"$out/src/.commit"
cd "$out/src"
DEB_BUILD_OPTIONS="${DEB_BUILD_OPTIONS:-nocheck parallel=$(nproc)}" dpkg-buildpackage -b -us -uc >"$out/build.log" 2>&1 ||
	{ tail -n 40 "$out/build.log"; fail "dpkg-buildpackage failed"; }

deb=$(ls "$out"/qbouncer_"$version"_*.deb)
dpkg-deb -x "$deb" "$out/root"
for f in usr/bin/qbouncer etc/qbouncer/qbouncer.ini etc/qbouncer/userlist.txt lib/systemd/system/qbouncer.service \
	lib/systemd/system/qbouncer.socket usr/share/man/man1/qbouncer.1.gz usr/share/man/man5/qbouncer.5.gz \
	usr/bin/qbouncer-work lib/systemd/system/qbouncer-work@.service usr/share/man/man1/qbouncer-work.1.gz \
	usr/share/doc/qbouncer/copyright usr/share/doc/qbouncer/README.md usr/share/doc/qbouncer/doc/queue.md \
	usr/share/qbouncer/uninstall.sql; do
	[ -f "$out/root/$f" ] || fail "the package has no $f"
done
sh "$repo/dev/links.sh" "$out/root/usr/share/doc/qbouncer" || fail "links of the installed documentation"
grep -q '^unix_socket_dir = /run/qbouncer$' "$out/root/etc/qbouncer/qbouncer.ini" || fail "unix_socket_dir is not /run/qbouncer"
grep -q '^RuntimeDirectory=qbouncer$' "$out/root/lib/systemd/system/qbouncer.service" || fail "nobody makes /run/qbouncer"
# An installation and a purge, in a root of their own with the tools of this machine in place of the real ones.
dpkg-deb -e "$deb" "$out/control"
mkdir -p "$out/tools"
for t in adduser deluser delgroup; do
	printf '#!/bin/sh\necho "%s $*" >>"%s/calls"\n' $t "$out" >"$out/tools/$t"
	chmod +x "$out/tools/$t"
done
printf '#!/bin/sh\n[ "$2" = qbouncer ]\n' >"$out/tools/getent"
chmod +x "$out/tools/getent"
: >"$out/calls"
PATH="$out/tools:$PATH" DPKG_MAINTSCRIPT_PACKAGE=qbouncer DPKG_ROOT="$out/root" sh "$out/control/postrm" purge >"$out/purge.log" 2>&1 ||
	{ cat "$out/purge.log"; fail "purge fails"; }
grep -q '^deluser .*qbouncer' "$out/calls" || fail "purge leaves the user"
: >"$out/calls"
PATH="$out/tools:$PATH" DPKG_MAINTSCRIPT_PACKAGE=qbouncer DPKG_ROOT="$out/root" sh "$out/control/postrm" remove >"$out/purge.log" 2>&1 ||
	{ cat "$out/purge.log"; fail "remove fails"; }
! grep -q deluser "$out/calls" || fail "remove takes the user away, whose files stay"
[ "$("$out/root/usr/bin/qbouncer" --version | head -n 1 | cut -d' ' -f2)" = "$version" ] || fail "--version is not $version"
[ "$("$out/root/usr/bin/qbouncer-work" --version | cut -d' ' -f2)" = "$version" ] || fail "--version of qbouncer-work is not $version"
grep -q '^ExecStart=/usr/bin/qbouncer-work ' "$out/root/lib/systemd/system/qbouncer-work@.service" || fail "the unit of qbouncer-work"
sed "s,/etc/qbouncer,$out/root/etc/qbouncer," "$out/root/etc/qbouncer/qbouncer.ini" >"$out/installed.ini"
"$out/root/usr/bin/qbouncer" --check-config "$out/installed.ini" || fail "the installed configuration is not good"
# What hardening promises: position independent, nothing writable after the start, no executable stack.
readelf -Wl "$out/root/usr/bin/qbouncer" >"$out/elf.txt"
readelf -Wd "$out/root/usr/bin/qbouncer" >>"$out/elf.txt"
readelf -Ws "$out/root/usr/bin/qbouncer" >>"$out/elf.txt"
grep -q 'file type is DYN' "$out/elf.txt" || fail "the program is not position independent"
grep -q 'GNU_RELRO' "$out/elf.txt" && grep -q 'BIND_NOW\|FLAGS.*NOW' "$out/elf.txt" || fail "no full RELRO"
grep -q 'GNU_STACK.* RW ' "$out/elf.txt" || fail "the stack is executable"
grep -q '__stack_chk_fail' "$out/elf.txt" || fail "no stack protector"
grep -q '__[a-z]*printf_chk' "$out/elf.txt" || fail "no FORTIFY"
echo "$(basename "$deb"): good"
