/* SPDX-License-Identifier: MIT OR Apache-2.0
 * A target of iSCSI that lets everybody log in, and tells one lie, for the suite storage.
 *
 * usage: vrnic_liar PORT LIE
 *
 * As the answer to each SCSI command:
 * beyond: data behind the end of the command's buffer. unknown: data for a command that does not exist.
 * r2t: a request for data of a command that reads. ping, abort, reject, login: an answer of another kind in the name of
 * the initiator's task of the command. long: a PING with more data than the initiator has room for.
 *
 * As the answer to something else:
 * tasks: that a request about tasks is complete, as the answer to a PING. stranger: a login, with the tag of a task
 * that the initiator does not have.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include "side.h"

enum { HEADER = 48, TEXT = 8192, NO_TAG = -1 };
enum { PING_OUT = 0x00, SCSI_COMMAND = 0x01, LOGIN = 0x03, LOGOUT = 0x06 };
enum { PING = 0x20, RESPONSE = 0x21, TASKS = 0x22, LOGGED_IN = 0x23, DATA_IN = 0x25 };
enum { LOGGED_OUT = 0x26, R2T = 0x31, REJECT = 0x3f };
enum { FINAL = 0x80, CHECK_CONDITION = 2, IMMEDIATE_REJECTED = 6 };

static uint32_t stat_sn = 1;
/* The first task of the initiator after the one of the login, in the form in which Linux sends its tags. */
static const unsigned char next_task[4] = { 1 };

static void put(unsigned char *header, int at, uint32_t value)
{
	uint32_t word = htonl(value);

	memcpy(header + at, &word, sizeof(word));
}

static uint32_t word(const unsigned char *header, int at)
{
	uint32_t value;

	memcpy(&value, header + at, sizeof(value));
	return ntohl(value);
}

static int get_all(int sock, void *to, int length)
{
	return !length || recv(sock, to, length, MSG_WAITALL) == length;
}

/* Sends a PDU with this data. Returns zero if the initiator has gone. */
static int say(int sock, unsigned char *header, const void *data, int length)
{
	static unsigned char pdu[HEADER + TEXT];
	int padded = (length + 3) & ~3;

	header[5] = length >> 16;
	header[6] = length >> 8;
	header[7] = length;
	memcpy(pdu, header, HEADER);
	memset(pdu + HEADER, 0, padded);
	if (length)
		memcpy(pdu + HEADER, data, length);
	return send(sock, pdu, HEADER + padded, MSG_NOSIGNAL) == HEADER + padded;
}

/* Begins an answer to a request. */
static void answer(unsigned char *header, const unsigned char *request, int opcode)
{
	memset(header, 0, HEADER);
	header[0] = opcode;
	header[1] = FINAL;
	memcpy(header + 16, request + 16, 4);
	put(header, 20, NO_TAG);
	put(header, 24, stat_sn);
	put(header, 28, word(request, 24) + 1);
	put(header, 32, word(request, 24) + 64);
}

/* Accepts all that the initiator offers. */
static int log_in(int sock, const unsigned char *request, const char *text, int length, const char *kind)
{
	static const char *const own[] = { "Initiator", "TargetName", "SessionType", "MaxRecvData", "AuthMethod" };
	char out[TEXT] = "AuthMethod=None";
	int to = request[1] & 0x0c ? 0 : (int)strlen(out) + 1;
	unsigned char header[HEADER];

	for (int at = 0; at < length; at += strlen(text + at) + 1) {
		int is_own = 0;

		for (unsigned nth = 0; nth < sizeof(own) / sizeof(*own); nth++)
			is_own |= !strncmp(text + at, own[nth], strlen(own[nth]));
		if (!is_own && text[at])
			to += sprintf(out + to, "%s", text + at) + 1;
	}
	answer(header, request, LOGGED_IN);
	header[1] = request[1];
	if (!strcmp(kind, "stranger"))
		memcpy(header + 16, next_task, 4);
	memcpy(header + 8, request + 8, 6);
	/* The session. */
	header[15] = (request[1] & 0x83) == 0x83;
	memset(header + 20, 0, 4);
	put(header, 28, word(request, 24));
	stat_sn++;
	return say(sock, header, out, to);
}

static int lie(int sock, const unsigned char *command, const char *kind)
{
	unsigned char header[HEADER], rejected[HEADER] = { 0x40, FINAL }, data[4096] = { 0 };

	answer(header, command, !strcmp(kind, "r2t") ? R2T : DATA_IN);
	if (!strcmp(kind, "r2t")) {
		put(header, 20, 1);
		put(header, 44, 8);
		return say(sock, header, NULL, 0);
	}
	if (!strcmp(kind, "beyond")) {
		put(header, 40, word(command, 20));
		return say(sock, header, data, 8);
	}
	if (!strcmp(kind, "unknown")) {
		put(header, 16, word(command, 16) ^ 0x10000);
		return say(sock, header, data, 8);
	}
	memcpy(header + 16, next_task, 4);
	memset(header + 36, 0, 12);
	if (!strcmp(kind, "reject")) {
		memcpy(rejected + 16, next_task, 4);
		header[2] = IMMEDIATE_REJECTED;
		put(header, 16, NO_TAG);
		header[0] = REJECT;
		return say(sock, header, rejected, HEADER);
	}
	if (!strcmp(kind, "long"))
		put(header, 16, NO_TAG);
	header[0] = !strcmp(kind, "abort") ? TASKS : !strcmp(kind, "login") ? LOGGED_IN : PING;
	return say(sock, header, data, strcmp(kind, "long") ? 0 : sizeof(data));
}

/* Answers a request that wants an answer, by one of this kind without data. */
static int agree(int sock, const unsigned char *request, int opcode)
{
	unsigned char header[HEADER];

	if (word(request, 16) == (uint32_t)NO_TAG)
		return 1;
	answer(header, request, opcode);
	memset(header + 20, 0, 4);
	return say(sock, header, NULL, 0);
}

/* Answers a SCSI command with an error, without a lie. */
static int fail(int sock, const unsigned char *command)
{
	unsigned char header[HEADER];

	answer(header, command, RESPONSE);
	memset(header + 20, 0, 4);
	header[3] = CHECK_CONDITION;
	stat_sn++;
	return say(sock, header, NULL, 0);
}

/* Serves an initiator until it goes. */
static void serve(int sock, const char *kind)
{
	unsigned char header[HEADER];
	char text[TEXT + 1];

	while (get_all(sock, header, HEADER)) {
		int length = (header[5] << 16 | header[6] << 8 | header[7]) + 3, good = 1;

		length &= ~3;
		if (header[4] || length > TEXT || !get_all(sock, text, length))
			return;
		text[length] = 0;
		if ((header[0] & 0x3f) == LOGIN)
			good = log_in(sock, header, text, length, kind);
		else if ((header[0] & 0x3f) == SCSI_COMMAND)
			good = !strcmp(kind, "tasks") ? fail(sock, header) : lie(sock, header, kind);
		else if ((header[0] & 0x3f) == PING_OUT && !strcmp(kind, "tasks"))
			good = agree(sock, header, TASKS);
		else if ((header[0] & 0x3f) == LOGOUT)
			good = agree(sock, header, LOGGED_OUT);
		if (!good || (header[0] & 0x3f) == LOGOUT)
			return;
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	need(argc == 3, "usage: vrnic_liar PORT LIE");
	at.sin_port = htons(atoi(argv[1]));
	need(listener >= 0, "socket");
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	need(!bind(listener, (void *)&at, sizeof(at)) && !listen(listener, 4), "listening");
	for (;;) {
		int sock = accept(listener, NULL, NULL);

		need(sock >= 0, "accept");
		serve(sock, argv[2]);
		close(sock);
	}
}
