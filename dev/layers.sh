#!/bin/sh
# Checks every #include "module/file.h" against the table of layers: a module may include itself and
# what its row names. Private headers (no folder in the name) must be in the same folder.
set -eu
cd "$(dirname "$0")/.."

find src include -name '*.[ch]' -type f | sort | xargs awk '
BEGIN {
	# module      may include
	may["base"] = "base"
	may["conf"] = "base conf"
	may["net"] = "base conf net"
	may["wire"] = "base conf wire"
	may["qlang"] = "base conf wire qlang"
	may["auth"] = "base conf net wire auth"
	may["pool"] = "base conf net wire auth pool"
	may["session"] = "base conf net wire auth pool session"
	may["relay"] = "base conf net wire auth pool session relay"
	may["login"] = "base conf net wire auth pool session relay login"
	may["pooler"] = "base conf net wire auth pool session relay login pooler"
	may["queue"] = "base conf net wire qlang auth pool pooler queue"
	may["show"] = "base conf net wire auth pool pooler queue show"
	may["admin"] = "base conf net wire auth pool pooler queue show admin"
	may["http"] = "base conf net wire auth pool pooler queue show http"
	may["work"] = "base work" # a program of its own, beside qbouncer
	may["main"] = "base conf net wire qlang auth pool pooler queue show admin http"

	# What the rooms of the pooler have in common is theirs alone: whoever is above sees the other headers.
	n = split("answer client database expect hand_out parts reading rooms server settings stmt", own, " ")
	for (i = 1; i <= n; i++)
		inside["pool/" own[i] ".h"] = 1

	# Libraries with one home. Elsewhere they are a mistake.
	home["event2/"] = "net http"
	home["libpq-fe.h"] = "queue work"
	home["openssl/"] = "base net wire"
	home["systemd/"] = "net main"
}

function allowed(list, word) { return index(" " list " ", " " word " ") > 0 }

function complain(text) {
	printf "%s:%d: %s\n", FILENAME, FNR, text
	bad++
}

FNR == 1 {
	n = split(FILENAME, part, "/")
	module = n == 2 ? "main" : part[2]
	folder = FILENAME
	sub(/[^\/]*$/, "", folder)
	if (!(module in may))
		complain("module " module " is not in the table of dev/layers.sh")
}

/^[ \t]*#[ \t]*include[ \t]*"/ {
	split($0, quoted, "\"")
	name = quoted[2]
	if (name ~ /\.\./)
		complain("includes \"" name "\": no ..")
	else if (name ~ /\//) {
		split(name, p, "/")
		if (!allowed(may[module], p[1]))
			complain(module " may not include \"" name "\"")
		if ((name in inside) && !allowed("pool session relay login pooler", module))
			complain(module " may not include "" name "": it is of the rooms of the pooler")
		if (("" (getline line < ("include/" name))) < 0)
			complain("\"" name "\" is not in include/")
		close("include/" name)
	} else {
		if ((getline line < (folder name)) < 0)
			complain("private header \"" name "\" is not in " folder)
		close(folder name)
	}
}

/^[ \t]*#[ \t]*include[ \t]*</ {
	for (prefix in home)
		if (index($0, "<" prefix) && !allowed(home[prefix], module))
			complain(module " may not include " $NF " (home: " home[prefix] ")")
}

END {
	printf "layers: %d wrong includes\n", bad
	exit bad > 0
}'
