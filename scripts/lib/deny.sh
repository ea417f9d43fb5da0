# What scripts/deny checks.
# shellcheck shell=bash

# check_crates: checks the crates of Cargo.lock with cargo-deny. The last line says if known faults were not checked.
check_crates() {
	local checks=(bans licenses sources) reason=
	if reason=$(timeout 60 cargo deny fetch db 2>&1); then
		checks+=(advisories)
		reason=
	fi
	cargo deny --log-level error check --hide-inclusion-graph "${checks[@]}"
	if [ "${#checks[@]}" -lt 4 ]; then
		printf '%s\n' "${reason:-cargo deny fetch took more than 60 s}" | tail -n 5 >&2
		step "NOT CHECKED: known faults of these crates (advisories). Their list could not be fetched, for the reason above"
	else
		step "checked: ${checks[*]}"
	fi
}
