#!/bin/sh
# Measures what makes a house hard to live in, and fails when something has become worse than its limit:
#
#   circle    source files of a module of which each reaches each by calls: the largest such circle
#   flags     yes-or-no members of one struct, of one bit or of more: the most
#   header    lines of one header: the longest. Tables (no include guard) may be long
#   state     mutable variables beyond one for each file: what a module keeps is one struct for each of its files
#   asserts   per 1000 lines of a module's sources: ASSERT, INVARIANT and the CHECK_x() made of it
#   wide      lines of documents above 120 columns that are prose
#
#   dev/house.sh BUILD     BUILD has the objects of these sources: build/gcc
#
# The limits are what was reached, or what is good enough: headers of 300 lines. Who makes something better lowers
# them; nobody raises them.
set -eu
cd "$(dirname "$0")/.."
LC_ALL=C.UTF-8
export LC_ALL
build=${1:?usage: dev/house.sh BUILD}

# module  circle  flags  header  state  asserts (at least)
limits='
base       1       3       64      0     2.8
conf       1       2      171      0       0
net        3       5      172     22     0.8
wire       1       2      120      3     0.3
auth       1       5      101     14       0
pool       2       6      271      1    16.0
session     2       2      105      0    15.0
relay      2       4      145      0    16.0
login      1       4      100      0     9.0
pooler     1       2       85      0     2.5
qlang      1       5      300      0     1.0
queue      1       6      300      2    12.0
show       1       1       90      0     2.0
admin      1       2      100      2       0
http       1       1       44      0       0
main       1       5       49     10       0
work       1       5      120      0       2.5
'

files_of() { # MODULE ENDING
	case $1 in
	main) find src -maxdepth 1 -name "*.$2" -type f ;;
	work) find src/work -name "*.$2" -type f ;;
	*) find "src/$1" "include/$1" -name "*.$2" -type f ;;
	esac | sort
}

# From the lines of nm: which file calls a function of which. Tables of functions are no calls.
circle_of() {
	for c in $(files_of "$1" c); do
		nm -P "$build/${c%.c}.o" | sed "s|^|$c |"
	done | awk '
	$3 ~ /^[TW]$/ { owner[$2] = $1 }
	$3 == "U" { n++; user[n] = $1; wants[n] = $2 }
	{ file[$1] = 1 }
	END {
		for (i = 1; i <= n; i++)
			if (wants[i] in owner && owner[wants[i]] != user[i] && !((user[i], owner[wants[i]]) in edge)) {
				edge[user[i], owner[wants[i]]] = 1
				to[user[i]] = to[user[i]] " " owner[wants[i]]
			}
		for (f in file) { # what f reaches
			k = split(to[f], stack, " ")
			while (k > 0) {
				at = stack[k--]
				if ((f, at) in reaches)
					continue
				reaches[f, at] = 1
				m = split(to[at], next_ones, " ")
				for (i = 1; i <= m; i++)
					stack[++k] = next_ones[i]
			}
		}
		most = 1
		for (f in file) {
			size = 0
			for (g in file)
				size += ((f, g) in reaches) && ((g, f) in reaches)
			if (size > most)
				most = size
		}
		print most
	}'
}

# The struct with the most bools: their number and its name.
flags_of() {
	# shellcheck disable=SC2046
	awk '
	function leave() { if (n > most) { most = n; name = which } n = 0 }
	/^(typedef |static )*struct( [a-z_0-9]+)? \{/ { which = $0; sub(/.*struct ?/, "", which); sub(/ .*/, "", which); inside = 1 }
	inside && /^\t+bool [^(]*;/ { sub(/;.*/, ""); n += gsub(/,/, "") + 1 }
	/^\}/ { leave(); inside = 0 }
	END { print most + 0, name == "" ? "-" : name }' $(files_of "$1" h) $(files_of "$1" c)
}

# Variables that are neither constant nor the first one of their file, those inside functions too.
state_of() {
	for c in $(files_of "$1" c); do
		objdump -t "$build/${c%.c}.o" | awk '
		NF > 3 && $(NF - 2) ~ /^\.(bss|data)/ && $(NF - 2) !~ /^\.data\.rel\.ro/ && / O / { n++ }
		END { print (n > 1 ? n - 1 : 0) }'
	done | awk '{ n += $1 } END { print n + 0 }'
}

header_of() {
	for h in $(files_of "$1" h); do
		grep -q '^#ifndef QB_' "$h" && echo "$(wc -l <"$h") $(basename "$h")"
	done | sort -rn | awk 'NR == 1 { print; found = 1 } END { if (!found) print 0, "-" }'
}

asserts_of() {
	# shellcheck disable=SC2046
	cat $(files_of "$1" c) $(files_of "$1" h) | awk '
	!/^#/ { n += gsub(/(^|[^A-Z_])(ASSERT|INVARIANT|CHECK_[A-Z]+)\(/, "") }
	END { printf "%.1f\n", NR ? n * 1000 / NR : 0 }'
}

# Lines of prose that are too wide: not code, not tables.
wide_lines() {
	find . -name '*.md' -type f -not -path './build/*' -not -path './.git/*' | sort | LC_ALL=C xargs awk '
	FNR == 1 { fence = 0 }
	/^ *```/ { fence = !fence }
	fence || /^    / || /^ *\|/ { next }
	{ gsub(/[\200-\277]/, "") } # the first byte of a character counts
	length > 120 { printf "house: %s:%d is wider than 120 columns\n", FILENAME, FNR }'
}

for o in $(find src -name '*.c' -type f | sed 's/c$/o/'); do
	[ -f "$build/$o" ] || { echo "house: $build/$o is not there: build first" >&2; exit 1; }
done
echo "module  circle  flags (struct)            header (file)             state  asserts per 1000 lines"
wide=$(wide_lines)
[ -z "$wide" ] || echo "$wide"
echo "$limits" | {
	bad=0
	# over WHAT NUMBER LIMIT
	over() {
		[ "$2" -le "$3" ] && return
		echo "house: $module: $1 $2, limit $3"
		bad=1
	}
	while read -r module circle_limit flags_limit header_limit state_limit asserts_limit; do
		[ -n "$module" ] || continue
		circle=$(circle_of "$module")
		flags=$(flags_of "$module")
		header=$(header_of "$module")
		state=$(state_of "$module")
		asserts=$(asserts_of "$module")
		printf '%-7s %4d  %4d %-20s %6d %-20s %4d %6s\n' "$module" "$circle" "${flags% *}" "(${flags#* })" \
			"${header% *}" "(${header#* })" "$state" "$asserts"
		over "files in a circle of calls" "$circle" "$circle_limit"
		over "flags of struct ${flags#* }" "${flags% *}" "$flags_limit"
		over "lines of ${header#* }" "${header% *}" "$header_limit"
		over "variables beside the struct of their file" "$state" "$state_limit"
		awk -v is="$asserts" -v limit="$asserts_limit" 'BEGIN { exit is < limit }' || {
			echo "house: $module: asserts per 1000 lines $asserts, at least $asserts_limit"
			bad=1
		}
	done
	[ $bad -eq 0 ] && [ -z "$wide" ] || exit 1
}
echo "house: as good as it was"
