# Adds the lines of this guest's /etc/hosts to the table of another root, whose path is the argument, except for names
# that are there. A symbolic link is left alone, because it may lead out of that root.
[ ! -L "$1" ] || exit 0
own=$(cat "$1" 2>/dev/null)
[ ! -s "$1" ] || [ -z "$(tail -c 1 "$1")" ] || echo >>"$1"
while read -r address name others; do
	printf '%s\n' "$own" | grep -qE "^[^#]*[[:space:]]$name([[:space:]]|\$)" ||
		echo "$address $name${others:+ $others}" >>"$1" || exit
done </etc/hosts
