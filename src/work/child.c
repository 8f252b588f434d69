/*
 * A process in a group of its own, and the pipes to it.
 */
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FD_IN, FD_OUT, FD_ERR };
/* Of one pipe in one turn, so that one command that writes without end does not stop the others. */
enum { READ_TURNS = 16, READ_SIZE = 16384 };
/* So much is kept behind a line that nobody has asked for yet; then its pipe is full. */
enum { BEHIND_MOST = 65536 };

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void child_init(struct child *c)
{
	*c = (struct child){.in = -1, .out = -1, .err = -1, .kill_at = USEC_NEVER};
}

void child_free(struct child *c)
{
	ASSERT(c->pid == 0);
	close_fd(&c->in);
	close_fd(&c->out);
	close_fd(&c->err);
	buf_free(&c->input);
	buf_free(&c->result);
	child_init(c);
}

/* In the new process. Between fork() and exec() of a program of one thread everything is allowed. */
static void __attribute__((noreturn))
become(char **command, const struct child_variable *variables, const int *fds)
{
	sigset_t none;
	setpgid(0, 0);
	for (; variables->name != NULL; variables++)
		if (variables->value == NULL)
			unsetenv(variables->name);
		else if (setenv(variables->name, variables->value, 1) < 0)
			goto failed;
	for (int i = 0; i < CHILD_FDS; i++)
		if (fds[i] >= 0 && dup2(fds[i], i) < 0)
			goto failed;
	signal(SIGPIPE, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execvp(command[0], command);
failed:
	dprintf(STDERR_FILENO, "qbouncer-work: cannot run \"%s\": %s\n", command[0],
		strerror(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

/* A pipe of which our end, the one of number ours, does not block. */
static bool make_pipe(int ours, int *our_fd, int *their_fd)
{
	int fds[2];
	if (pipe2(fds, O_CLOEXEC) < 0)
		return false;
	*our_fd = fds[ours];
	*their_fd = fds[!ours];
	return fcntl(*our_fd, F_SETFL, O_NONBLOCK) == 0;
}

bool child_start(struct child *c, char **command, struct buf *input,
	const struct child_variable *variables, bool result, size_t result_max)
{
	int theirs[CHILD_FDS] = {-1, -1, -1};
	ASSERT(c->pid == 0);
	child_free(c);
	c->result_max = result_max;
	bool ok = make_pipe(1, &c->in, &theirs[FD_IN]) && make_pipe(0, &c->err, &theirs[FD_ERR]) &&
		  (!result || make_pipe(0, &c->out, &theirs[FD_OUT]));
	pid_t pid = ok ? fork() : -1;
	if (pid == 0)
		become(command, variables, theirs);
	int error = errno;
	for (int i = 0; i < CHILD_FDS; i++)
		close_fd(&theirs[i]);
	if (pid < 0) {
		child_free(c);
		errno = error;
		return false;
	}
	setpgid(pid, pid); /* whoever of both comes first; it may have become the command already */
	c->pid = pid;
	c->input = *input;
	*input = BUF_INIT;
	return true;
}

bool child_give(struct child *c, const struct buf *input)
{
	ASSERT(c->pid != 0);
	c->stays = true;
	c->error_bytes = 0;
	buf_put(&c->input, input->data + input->off, buf_used(input));
	return !buf_failed(&c->input);
}

void child_forget_line(struct child *c)
{
	buf_free(&c->result);
	c->line_end = 0;
	c->result_over = false;
}

/* Before "from" there is no end of a line. */
static void find_line(struct child *c, size_t from)
{
	const char *text = (const char *)c->result.data + c->result.off;
	size_t used = buf_used(&c->result);
	const char *newline = used > from ? memchr(text + from, '\n', used - from) : NULL;
	c->line_end = newline != NULL ? (size_t)(newline - text) + 1 : 0;
	/* The line's own end does not count. */
	if (buf_failed(&c->result) || (newline != NULL ? c->line_end - 1 : used) > c->result_max) {
		child_forget_line(c);
		c->result_over = true;
	}
}

void child_next_line(struct child *c)
{
	ASSERT(c->line_end > 0);
	c->result.off += c->line_end;
	if (buf_used(&c->result) == 0)
		buf_free(&c->result);
	find_line(c, 0);
}

void child_close(struct child *c)
{
	if (c->pid == 0)
		return;
	close_fd(&c->in);
	buf_free(&c->input);
}

void child_poll(const struct child *c, struct pollfd *fds)
{
	bool writes = !c->stays || buf_used(&c->input) > 0;
	fds[FD_IN] = (struct pollfd){.fd = writes ? c->in : -1, .events = POLLOUT};
	bool reads = c->line_end == 0 || buf_used(&c->result) - c->line_end < BEHIND_MOST;
	fds[FD_OUT] = (struct pollfd){.fd = reads ? c->out : -1, .events = POLLIN};
	fds[FD_ERR] = (struct pollfd){.fd = c->err, .events = POLLIN};
}

/* What is in the pipe then nobody will read. */
static void close_input(struct child *c)
{
	int in_pipe = 0;
	if (c->in >= 0 && c->stays && ioctl(c->in, FIONREAD, &in_pipe) == 0)
		c->unread = (size_t)in_pipe + buf_used(&c->input);
	close_fd(&c->in);
	buf_free(&c->input);
}

/* A command need not read its payload: EPIPE is no error. */
static void write_input(struct child *c)
{
	while (c->in >= 0 && buf_used(&c->input) > 0) {
		ssize_t n = write(c->in, c->input.data + c->input.off, buf_used(&c->input));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0) {
			close_input(c);
			return;
		}
		c->input.off += (size_t)n;
	}
	if (c->stays)
		buf_free(&c->input);
	else
		close_input(c);
}

static void keep_result(struct child *c, const char *data, size_t len)
{
	/* Of a line that is too long the rest is not looked for: whoever wrote it is replaced. */
	if (c->result_over)
		return;
	if (c->stays) {
		size_t before = buf_used(&c->result);
		buf_put(&c->result, data, len);
		if (c->line_end == 0)
			find_line(c, before);
		return;
	}
	if (len > c->result_max - buf_used(&c->result)) {
		c->result_over = true;
		buf_free(&c->result);
		return;
	}
	buf_put(&c->result, data, len);
}

static void keep_error(struct child *c, const char *data, size_t len)
{
	for (size_t i = 0; i < len; i++)
		c->error[(c->error_bytes + i) % CHILD_ERROR_MAX] = data[i];
	c->error_bytes += len;
	/* Whoever reads our own stderr sees it too. */
	while (len > 0) {
		ssize_t n = write(STDERR_FILENO, data, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return;
		data += n;
		len -= (size_t)n;
	}
}

static void read_pipe(
	struct child *c, int *fd, void (*keep)(struct child *, const char *, size_t), int turns)
{
	char data[READ_SIZE];
	while (*fd >= 0 && turns-- > 0) {
		ssize_t n = read(*fd, data, sizeof(data));
		if (n > 0)
			keep(c, data, (size_t)n);
		else if (n == 0 || (errno != EINTR && errno != EAGAIN))
			close_fd(fd);
		else if (errno == EAGAIN)
			return;
	}
}

void child_step(struct child *c, const struct pollfd *fds)
{
	if (fds[FD_IN].revents != 0)
		write_input(c);
	if (fds[FD_OUT].revents != 0)
		read_pipe(c, &c->out, keep_result, READ_TURNS);
	if (fds[FD_ERR].revents != 0)
		read_pipe(c, &c->err, keep_error, READ_TURNS);
}

bool child_ended(struct child *c)
{
	siginfo_t info = {0};
	if (c->pid == 0 || waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 ||
		info.si_pid == 0)
		return false;
	/* As long as nobody has waited for it its number is its own, and so is that of the group. */
	kill(-c->pid, SIGKILL);
	while (waitpid(c->pid, &c->status, 0) < 0 && errno == EINTR)
		;
	c->pid = 0;
	/* What is in the pipes, a pipe holds a megabyte at most; who has left the group may hold them open for ever. */
	read_pipe(c, &c->out, keep_result, 4 * READ_TURNS);
	read_pipe(c, &c->err, keep_error, 4 * READ_TURNS);
	close_input(c);
	close_fd(&c->out);
	close_fd(&c->err);
	return true;
}

void child_end(struct child *c, usec_t now, usec_t grace)
{
	if (c->pid == 0)
		return;
	bool again = c->kill_at != USEC_NEVER;
	kill(-c->pid, again || grace == 0 ? SIGKILL : SIGTERM);
	c->kill_at = now + grace;
}

void child_tick(struct child *c, usec_t now)
{
	if (c->pid != 0 && c->kill_at <= now) {
		kill(-c->pid, SIGKILL);
		c->kill_at = now + USEC_SEC; /* those that were born meanwhile */
	}
}

void child_error_text(const struct child *c, size_t max, struct buf *ret)
{
	size_t have = c->error_bytes < CHILD_ERROR_MAX ? c->error_bytes : CHILD_ERROR_MAX;
	char text[CHILD_ERROR_MAX + 1];
	for (size_t i = 0; i < have; i++) {
		char byte = c->error[(c->error_bytes - have + i) % CHILD_ERROR_MAX];
		text[i] = byte != '\0' ? byte : '?';
	}
	text[have] = '\0';
	while (have > 0 && (text[have - 1] == '\n' || text[have - 1] == '\r'))
		text[--have] = '\0';
	const char *at = have > max ? text + (have - max) : text;
	/* The middle of a character is not its beginning. */
	for (int i = 0; i < 3 && ((unsigned char)*at & 0xc0) == 0x80 && at != text; i++)
		at++;
	while (*at != '\0') {
		size_t len = util_utf8_len(at);
		if (len == 0)
			buf_putc(ret, '?');
		else
			buf_put(ret, at, len);
		at += len == 0 ? 1 : len;
	}
}
