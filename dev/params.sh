#!/bin/sh
# Checks that a parameter which is not marked PARAM_INERT is read somewhere outside src/conf: a
# setting that is accepted and does nothing is a lie.
set -eu
cd "$(dirname "$0")/.."

rows=$(sed -n 's/^PARAM_[A-Z]* *(\([a-z_0-9]*\),.*/\1 &/p' include/conf/params.h |
	grep -v 'PARAM_INERT\|PARAM_COMPUTED' | cut -d' ' -f1)
unused=
for p in $rows; do
	find src -name '*.c' ! -path 'src/conf/*' -exec grep -qE "(->|\.)$p\b" {} + ||
		unused="$unused $p"
done
[ -z "$unused" ] && { echo "params: every parameter is read"; exit 0; }
echo "params: accepted, but read nowhere:" >&2
printf '  %s\n' $unused >&2
exit 1
