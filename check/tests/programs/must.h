/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

/* Ends the program if something fails that must not. */
#define MUST(what) \
	do { \
		if (!(what)) { \
			fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #what); \
			exit(1); \
		} \
	} while (0)
