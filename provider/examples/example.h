/* SPDX-License-Identifier: GPL-2.0 OR MIT
 * The common part of the examples: errors, the device, a listening socket.
 */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "vrnicdv.h"

static inline void need(int good, const char *what)
{
	if (!good) {
		fprintf(stderr, "%s failed: %s\n", what, strerror(errno));
		exit(1);
	}
}

/* For calls that return an errno. */
static inline void done(int error, const char *what)
{
	errno = error;
	need(error == 0, what);
}

static inline struct ibv_context *open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	need(list != NULL, "ibv_get_device_list");
	for (int i = 0; list[i] && !context; i++)
		if (vrnicdv_is_supported(list[i]))
			context = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	need(context != NULL, "opening a vrnic device");
	return context;
}

/* Listens by the kernel. */
static inline int listen_at(int port)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(port) };
	int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	need(bind(listener, (struct sockaddr *)&any, sizeof(any)) == 0, "bind");
	need(listen(listener, 16) == 0, "listen");
	return listener;
}

#endif
