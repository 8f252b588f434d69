#!/bin/sh
# What compares a secret with what a peer sends is util_equal_secret(), which takes as long whatever is
# in it. Complains of memcmp, strcmp and their like with an argument that is named as a secret is.
set -eu
cd "$(dirname "$0")/.."

names='secret|passw|proof|signature|digest|nonce_key|client_key|server_key|stored_key|cancel_key|md5\b|->key\b|\.key\b'
pattern="\\b(mem|str|strn|strcase|strncase)cmp *\\([^;]*($names)"

# the pattern finds what it is for
for line in 'if (memcmp(a->stored_key, b, 32) == 0)' 'return !strcmp(s->password, text);' \
	'strncmp(old, db->md5, 35)' 'memcmp(x->key, key, 8)'; do
	echo "$line" | grep -Eq "$pattern" || { echo "secrets.sh: does not see: $line" >&2; exit 1; }
done

# "md5" in quotes is a word; the key of a hash table of statements is none of these
if find src/auth src/wire src/pool src/session src/relay src/login src/pooler src/show src/admin src/http src/net -name '*.[ch]' | sort | xargs grep -nE "$pattern" |
	grep -vE '"md5"|^src/pool/stmt\.c:'; then
	echo "secrets: compared in a time that depends on them: use util_equal_secret()" >&2
	exit 1
fi
echo "secrets: compared in constant time"
