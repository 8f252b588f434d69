/* The console's parser: any text is a command or an error. */
#include <stddef.h>
#include <stdint.h>

#include "../../src/admin/admin_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct command cmd;
	struct pg_error err = {0};

	for (int strings = 0; strings < 2; strings++) {
		if (console_parse((const char *)data, size, strings, &cmd, &err))
			console_command_clear(&cmd);
		else if (err.sqlstate[0] == '\0')
			__builtin_trap();
	}
	return 0;
}
