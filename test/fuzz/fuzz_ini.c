/* The ini reader and all tables of keys: any bytes are a configuration or an error. */
#include <stddef.h>
#include <stdint.h>

#include "conf/conf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void ignore(const char *name, const char *value, const char *def, bool reloadable,
	const char *help, void *arg)
{
	(void)name;
	(void)value;
	(void)def;
	(void)reloadable;
	(void)help;
	(void)arg;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct conf_report report = {0};
	struct conf *c = conf_load_text("fuzz.ini", (const char *)data, size, &report);

	if ((c == NULL) != (report.errors > 0))
		__builtin_trap();
	if (c)
		conf_each_param(&c->p, ignore, NULL);
	conf_free(&c);
	buf_free(&report.text);
	return 0;
}
