#!/bin/sh
# Checks the links of the documentation to files and headings beside it, and that each decision has a number of its own.
#
#   dev/links.sh [DIR]     DIR: an installed tree, with all its *.md; without it those of the source
set -eu
if [ $# -gt 0 ]; then
	cd "$1"
else
	cd "$(dirname "$0")/.."
fi
list=$(find . -name '*.md' -not -path './build/*' -not -path './dev/*' -not -path './.git/*' | sort)
[ -n "$list" ] || { echo "links: no *.md in $PWD" >&2; exit 1; }

# A decision is spoken of by its number.
twice=$(for f in doc/decisions/*.md; do basename "$f"; done | sed 's/-.*//' | sort | uniq -d)
[ -z "$twice" ] || { echo "links: numbers that several decisions have:" $twice >&2; exit 1; }

# Each file is read twice: for its headings, then for its links.
# shellcheck disable=SC2086
awk '
function slug(text) {
	gsub(/`|\*\*/, "", text)
	text = tolower(text)
	gsub(/[^a-z0-9 _-]/, "", text)
	gsub(/ /, "-", text)
	return text
}
function clean(path,    n, i, parts, out, k) {
	n = split(path, parts, "/")
	k = 0
	for (i = 1; i <= n; i++) {
		if (parts[i] == "" || parts[i] == ".")
			continue
		if (parts[i] == ".." && k > 0) {
			k--
			continue
		}
		keep[++k] = parts[i]
	}
	out = "."
	for (i = 1; i <= k; i++)
		out = out "/" keep[i]
	return out
}
function there(path) {
	if (!(path in known))
		known[path] = system("test -e \"" path "\"") == 0
	return known[path]
}
function check(target,    file, anchor, at) {
	if (target ~ /^[a-z]+:/)
		return
	at = index(target, "#")
	file = at > 0 ? substr(target, 1, at - 1) : target
	anchor = at > 0 ? substr(target, at + 1) : ""
	file = file == "" ? FILENAME : clean(dir "/" file)
	links++
	if (!there(file))
		bad(target, "there is no such file")
	else if (anchor != "" && file ~ /\.md$/ && !((file, anchor) in heading))
		bad(target, "there is no such heading")
}
function bad(target, why) {
	printf "%s:%d: link to \"%s\": %s\n", FILENAME, FNR, target, why
	failed = 1
}
FNR == 1 {
	second = FILENAME in seen
	seen[FILENAME] = 1
	fence = 0
	dir = FILENAME
	sub(/\/[^\/]*$/, "", dir)
}
/^ *```/ { fence = !fence }
fence || /^    / { next }
!second {
	rest = $0
	while (match(rest, /<a id="[^"]*"/)) {
		heading[FILENAME, substr(rest, RSTART + 7, RLENGTH - 8)] = 1
		rest = substr(rest, RSTART + RLENGTH)
	}
}
!second && /^#+ / {
	text = $0
	sub(/^#+ +/, "", text)
	text = slug(text)
	n = times[FILENAME, text]++
	heading[FILENAME, n > 0 ? text "-" n : text] = 1
	next
}
second {
	rest = $0
	gsub(/`[^`]*`/, "", rest)
	while (match(rest, /\]\([^) ]+\)/)) {
		check(substr(rest, RSTART + 2, RLENGTH - 3))
		rest = substr(rest, RSTART + RLENGTH)
	}
}
END {
	if (!failed && links < 10) {
		print "links: only " links + 0 " were found"
		failed = 1
	}
	if (!failed)
		print "links: " links " are good"
	exit failed
}' $list $list
