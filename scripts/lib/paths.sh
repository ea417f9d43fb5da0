# Checks of what the options of scripts/lab name, before anything is installed or built.
# shellcheck shell=bash

# check_paths ARGUMENT…: ends the script if a file or folder is missing, a result could not be written, or a rule for
# faults has no action. Makes the folders of results. What follows `--` is not looked at.
check_paths() {
	local option value results=()
	while [ $# -gt 0 ] && [ "$1" != -- ]; do
		option=${1%%=*} value=${2-}
		[[ $1 != *=* ]] || value=${1#*=}
		case $option in
		--copy) check_path "$option" "$value" -d "is not a folder" ;;
		--root) check_path "$option" "$value" -e "does not exist" ;;
		--disk | --kernel | --module-file | --scenario) check_path "$option" "$value" -f "is not a file" ;;
		--fault) check_fault "$value" ;;
		--output) results+=("$value") ;;
		--junit | --pcap)
			[ ! -d "$value" ] || die "$option names $value, which is a folder"
			results+=("$(dirname "$value")")
			;;
		esac
		shift
	done
	# Last, so that nothing is made for options that are wrong.
	for value in "${results[@]}"; do
		{ mkdir -p "$value" && [ -w "$value" ]; } 2>/dev/null || die "cannot write to $value"
	done
}

# check_path OPTION PATH TEST WHAT: ends the script with the words WHAT if `test TEST PATH` fails.
check_path() {
	[ -e "$2" ] || die "$1 names $2, which does not exist"
	test "$3" "$2" || die "$1 names $2, which $4"
}

# check_fault RULE: ends the script if a rule has no action, or a field that its action does not have. The actions and
# their fields are in scripts/help/faults.txt, which a test of the program compares with its own.
check_fault() {
	local file=$VRNIC_TOP/scripts/help/faults.txt words word action fields actions
	read -r -d '' -a words <<<"$1" || true
	actions=$(cut -d : -f 1 "$file" | paste -s -d , | sed 's/,/, /g')
	[ ${#words[@]} -gt 0 ] || die "--fault: a rule must begin with an action: $actions"
	action=${words[0]}
	fields=$(awk -v action="$action:" '$1 == action { $1 = ""; print $0 " " }' "$file")
	[ -n "$fields" ] || die "--fault: '$action' is not an action; the actions are $actions"
	for word in "${words[@]:1}"; do
		[[ $word == *=* ]] || die "--fault: '$word' is not of the form name=value"
		[[ $fields == *" ${word%%=*} "* ]] ||
			die "--fault: $action has no field '${word%%=*}'; its fields are$(sed 's/ /, /2g; s/, $//' <<<"$fields")"
	done
}
