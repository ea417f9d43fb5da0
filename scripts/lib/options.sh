# Options of scripts that pass them on to a program of ours. The program may not be built yet, so its help is in
# scripts/help, and its options are read from there. Its tests compare the two.
# shellcheck shell=bash

# check_options SCRIPT ARGUMENT…: prints the help, or its first screen for -h, and ends if that is asked for. Ends the script if an option is unknown,
# an argument belongs to none, or a value has not the form that the help names. What follows `--` is not looked at.
check_options() {
	local name=$1 help=$VRNIC_TOP/scripts/help/$1.txt lines line value=''
	shift
	while [ $# -gt 0 ] && [ "$1" != -- ]; do
		case $1 in
		-h)
			first_screen "$name" "$help"
			exit
			;;
		--help)
			cat "$help"
			exit
			;;
		-*)
			check_value "$name" "$value"
			lines=$(grep -E -m 1 -A 1 -- "^ +${1%%=*}( |\$)" "$help") ||
				die "unknown option ${1%%=*}; scripts/$name --help lists the options"
			line=${lines%%$'\n'*} value=''
			if [[ $1 == *=* ]]; then check_form "$lines" "${1#*=}"; else value=${line#*--}; fi
			;;
		*)
			[[ $value == *\<* ]] || die "'$1' belongs to no option; scripts/$name --help lists the options"
			check_form "$lines" "$1"
			value=''
			;;
		esac
		shift
	done
	check_value "$name" "$value"
}

# first_screen SCRIPT FILE: prints what comes before the options in a help, and their names.
first_screen() {
	{
		sed '/^Arguments:$/,$d; /^Options:$/,$d' "$2"
		printf 'Options, which scripts/%s --help explains: %s\n' "$1" "$(grep -oE '^ +--[a-z0-9-]+' "$2" | xargs)"
	} | fold -s -w 118
}

# check_form HELP VALUE: ends the script if the value of an option has not the form that these two lines of its help name:
# a number, one of some words, or a program.
check_form() {
	local option=${1%% <*} form=${1#*<}
	option=${option##* } option=${option%% [*} form=${form%%>*}
	case $form in
	N | SECONDS | MIB)
		[[ $2 =~ ^[0-9]{1,18}$ ]] || die "$option is '$2', which is not a number"
		if [[ $1 =~ from\ ([0-9]+)\ to\ ([0-9]+) ]]; then
			((10#$2 >= BASH_REMATCH[1] && 10#$2 <= BASH_REMATCH[2])) ||
				die "$option is $2, and must be from ${BASH_REMATCH[1]} to ${BASH_REMATCH[2]}"
		fi
		;;
	PROGRAM) [ -f "$2" ] || die "$option names $2, which is not a file" ;;
	[a-z]*\|*) [[ "|$form|" == *"|$2|"* ]] || die "$option is '$2', and must be ${form//|/ or }" ;;
	esac
}

# check_value SCRIPT OPTION: ends the script if the option needs a value. That of an option with brackets can be left out.
check_value() {
	[[ $2 != *\ \<* ]] || die "the option --${2%% *} needs a value; scripts/$1 --help lists the options"
}
