/* For tests that break an invariant on purpose: in a child, which has to end there and say what is wrong. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static void breaks(void (*what)(void), const char *message)
{
	char said[1024] = "";
	size_t len = 0;
	ssize_t n;
	int ends[2], status;
	pid_t child;

	assert_int_equal(pipe(ends), 0);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct rlimit none = {0, 0};

		setrlimit(RLIMIT_CORE, &none);
		signal(SIGABRT, SIG_DFL); /* not cmocka's */
		dup2(ends[1], STDERR_FILENO);
		what();
		_exit(0);
	}
	close(ends[1]);
	while (len < sizeof(said) - 1 &&
		(n = read(ends[0], said + len, sizeof(said) - 1 - len)) > 0)
		len += (size_t)n;
	said[len] = '\0';
	close(ends[0]);
	assert_true(waitpid(child, &status, 0) == child);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT || strstr(said, message) == NULL)
		fail_msg("\"%s\" was not found: status %d, \"%s\"", message, status, said);
}
