/* SPDX-License-Identifier: GPL-2.0 OR MIT
 * Faults of the vrnic adapter, for tests in a guest: a rule is set for the guest's own device, and
 * ends with its scope. docs/faults.md has the rules. The process needs CAP_SYS_ADMIN, and the
 * operator's permission (guest-faults=yes).
 *
 *	VRNICFAULT_SCOPE struct vrnicfault fault = { 0 };
 *	char why[VRNICFAULT_REASON];
 *	uint64_t hits;
 *
 *	if (vrnicfault_arm(&fault, "vrnic0", "fail-request status=rem-op-err nth=3", why))
 *		errx(1, "%s", why);
 *	...
 *	vrnicfault_hits(&fault, &hits);
 */
#ifndef VRNICFAULT_H
#define VRNICFAULT_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/file.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of the longest reason, and of all lines about rules. */
enum { VRNICFAULT_REASON = 528, VRNICFAULT_TEXT = 16 << 10 };

/* A rule; its number is zero when it has ended. */
struct vrnicfault {
	char file[320];
	unsigned int number;
};

/* Reads all lines. Returns 0 or an errno. */
static inline int vrnicfault_read(int file, char *text)
{
	size_t length = 0;
	ssize_t got;

	while ((got = read(file, text + length, VRNICFAULT_TEXT - 1 - length)) > 0)
		length += (size_t)got;
	text[length] = '\0';
	return got < 0 ? errno : 0;
}

/* Returns the line about the rule with this number (zero: the highest one), or NULL. */
static inline const char *vrnicfault_line(const char *text, unsigned int number, unsigned int *found)
{
	const char *line = text, *best = NULL;
	unsigned int at;

	*found = 0;
	while (line && *line) {
		if (sscanf(line, "rule %u ", &at) == 1 && at > *found && (number == 0 || at == number)) {
			*found = at;
			best = line;
		}
		line = strchr(line, '\n');
		line = line ? line + 1 : NULL;
	}
	return best;
}

/* Adds the rule that the open file is for, and finds its number. */
static inline int vrnicfault_add(struct vrnicfault *fault, int file, const char *rule, char *reason)
{
	size_t length = strlen(rule);
	char *text = (char *)malloc(VRNICFAULT_TEXT);
	int error = 0, failed;

	if (!text)
		return ENOMEM;
	/* Until the number of the new rule is known, nobody else adds one. */
	if (flock(file, LOCK_EX) || write(file, rule, length) != (ssize_t)length)
		error = errno;
	failed = vrnicfault_read(file, text);
	if (error == EINVAL && !failed && strncmp(text, "refused ", 8) == 0)
		snprintf(reason, VRNICFAULT_REASON, "%.*s", (int)strcspn(text + 8, "\n"), text + 8);
	if (!error)
		error = failed;
	if (!error && !vrnicfault_line(text, 0, &fault->number))
		error = EIO;
	free(text);
	return error;
}

/*
 * Adds a rule for a device. Returns 0 or an errno, and the reason in a buffer of VRNICFAULT_REASON
 * bytes. ENOENT: there is no such device, or the operator does not permit rules. EPERM and EACCES:
 * the process lacks CAP_SYS_ADMIN. EINVAL: the adapter refuses the rule.
 */
static inline int vrnicfault_arm(struct vrnicfault *fault, const char *device, const char *rule, char *reason)
{
	char link[128], path[PATH_MAX];
	int file, error;

	memset(fault, 0, sizeof(*fault));
	snprintf(link, sizeof(link), "/sys/class/infiniband/%.64s/device", device);
	error = realpath(link, path) ? 0 : errno;
	snprintf(reason, VRNICFAULT_REASON, "%.200s: %s", device, strerror(error));
	if (error)
		return error;
	snprintf(fault->file, sizeof(fault->file), "/sys/kernel/debug/vrnic-%.255s/faults", strrchr(path, '/') + 1);
	file = open(fault->file, O_RDWR | O_CLOEXEC);
	error = file < 0 ? errno : 0;
	snprintf(reason, VRNICFAULT_REASON, "%s: %s", fault->file, strerror(error));
	if (error)
		return error;
	error = vrnicfault_add(fault, file, rule, reason);
	close(file);
	return error;
}

/* Sets how often the rule has hit. Returns 0 or an errno. ENOENT: it has ended, as by a reset. */
static inline int vrnicfault_hits(const struct vrnicfault *fault, uint64_t *hits)
{
	int file = open(fault->file, O_RDONLY | O_CLOEXEC), error;
	char *text = (char *)malloc(VRNICFAULT_TEXT);
	unsigned long long seen, hit;
	unsigned int number;
	const char *line;

	error = file < 0 ? errno : text ? vrnicfault_read(file, text) : ENOMEM;
	if (!error) {
		line = fault->number ? vrnicfault_line(text, fault->number, &number) : NULL;
		error = line && sscanf(line, "rule %u seen %llu hit %llu", &number, &seen, &hit) == 3 ? 0 : ENOENT;
	}
	if (!error)
		*hits = hit;
	if (file >= 0)
		close(file);
	free(text);
	return error;
}

/* Waits until the rule has hit this often. Returns 0 or an errno. ETIMEDOUT: it has not in time. */
static inline int vrnicfault_wait(const struct vrnicfault *fault, uint64_t hits, unsigned int timeout_ms)
{
	const struct timespec pause = { 0, 5000000 };
	uint64_t now = 0;
	int error;

	for (unsigned int waited = 0;; waited += 5) {
		error = vrnicfault_hits(fault, &now);
		if (error || now >= hits)
			return error;
		if (waited >= timeout_ms)
			return ETIMEDOUT;
		nanosleep(&pause, NULL);
	}
}

/* Removes the rule. Returns 0 or an errno. */
static inline int vrnicfault_clear(struct vrnicfault *fault)
{
	char text[32];
	int length = snprintf(text, sizeof(text), "clear %u", fault->number), error = 0, file;

	if (!fault->number)
		return 0;
	fault->number = 0;
	file = open(fault->file, O_WRONLY | O_CLOEXEC);
	if (file < 0 || write(file, text, (size_t)length) != length)
		error = errno;
	if (file >= 0)
		close(file);
	return error;
}

static inline void vrnicfault_end(struct vrnicfault *fault)
{
	(void)vrnicfault_clear(fault);
}

/* Removes the rule at the end of the scope of the variable, which begins as zeros. */
#define VRNICFAULT_SCOPE __attribute__((cleanup(vrnicfault_end)))

#ifdef __cplusplus
}
#endif

#endif
