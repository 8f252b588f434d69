/*
 * The entry of the cheap server and its clients.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cheap.h"

void die(const char *what)
{
	perror(what);
	exit(1);
}

void put32(uint8_t *at, uint32_t n)
{
	at[0] = n >> 24;
	at[1] = n >> 16;
	at[2] = n >> 8;
	at[3] = n;
}

uint32_t get32(const uint8_t *at)
{
	return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int args;
		int (*run)(char **arg);
	} modes[] = {
		{"serve", 3, do_serve},
		{"load", 8, do_load},
		{"logins", 5, do_logins},
	};

	for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++)
		if (argc == modes[i].args + 2 && strcmp(argv[1], modes[i].name) == 0)
			return modes[i].run(argv + 2);
	fprintf(stderr,
		"cheap serve DIR PORT SIZE\n"
		"cheap load PORT USER DATABASE plain|tls simple|extended CLIENTS AT_ONCE SECONDS\n"
		"cheap logins PORT USER DATABASE PROCESSES SECONDS\n");
	return 2;
}
