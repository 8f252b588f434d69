/* A text as JSON: what the programs in C and C++ answer with. */
#include <stdio.h>

static inline void json_say(const char *s)
{
	if (s == NULL) {
		fputs("null", stdout);
		return;
	}
	putchar('"');
	for (; *s != '\0'; s++)
		if ((unsigned char)*s < ' ' || *s == '"' || *s == '\\')
			printf("\\u%04x", (unsigned char)*s);
		else
			putchar(*s);
	putchar('"');
}
