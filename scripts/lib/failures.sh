# The ends of the reports of failed tests.
# shellcheck shell=bash

# print_failures LOG: prints what each failed test of a log has said: its first lines and its last ones.
print_failures() {
	awk '
		function show(i) {
			if (name != "") print name
			for (i = 1; i <= count; i++) if (i <= 10 || i > count - 30) print lines[i]
			name = ""
			count = 0
		}
		/^---- .* ----$/ { show(); name = $0; next }
		/^failures:$/ || /^test result: / { show() }
		name != "" { lines[++count] = $0 }
		END { show() }' "$1"
}
