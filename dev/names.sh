#!/bin/sh
# Checks that what the map names is there: each function(), CONSTANT_WITH_A_LINE, struct, file and folder in
# doc/overview.md.
set -eu
cd "$(dirname "$0")/.."
LC_ALL=C
export LC_ALL
map=${1:-doc/overview.md}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# words PATTERN: each that is in the map, once
words() { grep -oE "$1" "$map" | sort -u; }

# missing WHAT KNOWN: those of the list on standard input that KNOWN does not have, one a line
missing() {
	comm -23 - "$2" >"$work/missing"
	[ -s "$work/missing" ] || return 0
	sed "s|^|names: $map: there is no $1 |" "$work/missing"
	touch "$work/failed"
}

find src include -name '*.[ch]' -type f | sort >"$work/sources"
# a definition begins its line with a type, and its name is followed by what it takes; in SQL it is created
xargs sed -nE 's/^[a-z][A-Za-z0-9_ *()]*[ *]([a-z_0-9]+)\(.*/\1/p' <"$work/sources" >"$work/c"
sed -nE 's/.*CREATE (OR REPLACE )?FUNCTION queue[.]([a-z_0-9]+).*/\2/p' sql/functions/*.sql >"$work/sql"
sort -u "$work/c" "$work/sql" >"$work/functions"
words '[a-z_0-9]+\(\)' | tr -d '()' | sort -u | missing function "$work/functions"

xargs grep -ohE '\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b' <"$work/sources" | sort -u >"$work/constants"
words '\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b' | missing constant "$work/constants"

xargs sed -nE 's/^(struct [a-z_0-9]+)( \{|;).*/\1/p' <"$work/sources" | sort -u >"$work/structs"
words 'struct [a-z_0-9]+' | missing "" "$work/structs"

# with a folder: from the top, or as a link from doc/; without one: somewhere
find . -type f -not -path './build/*' -not -path './.git/*' -name '*.*' | sed 's|.*/||' | sort -u >"$work/files"
words '[A-Za-z0-9_-]+[.](c|h|sql|sh|md|ini|py)\b' | missing file "$work/files"
for path in $(words '[A-Za-z0-9_.-]+/[A-Za-z0-9_./-]*' | sed 's/[.]$//'); do
	[ -e "$path" ] || [ -e "doc/$path" ] || echo "$path"
done | sort -u >"$work/absent"
: >"$work/nothing"
missing path "$work/nothing" <"$work/absent"

[ ! -e "$work/failed" ] || exit 1
n=$(words '[a-z_0-9]+\(\)' | wc -l)
[ "$n" -gt 20 ] || { echo "names: only $n functions were found"; exit 1; }
echo "names: $n functions, and all else that $map names, are there"
