/*
 * The process in its system: background, user, pid file, file descriptors, systemd. Knows nothing
 * of what the program does. Entry points: process.h.
 */
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "net/loop.h"

#ifdef HAVE_SYSTEMD
#include <systemd/sd-daemon.h>
#endif

/* The file that we hold, as long as we live, and that of the process we take over from. */
static char pidfile_ours[PATH_MAX];
static char pidfile_beside[PATH_MAX + 32]; /* not in its place yet */
static bool pidfile_left;                  /* the file there is another one's to write */
static int pidfile_fd = -1, predecessor_fd = -1;
static int started_pipe = -1;

/* --- pid file --- */

/*
 * A number in a file outlives its process, and may be that of a stranger then. So who writes the
 * file keeps it locked until the end, and who reads it asks the kernel whose lock that is.
 */

/* 0: nobody's; -1: of a process that has no number here. A read lock, which anybody can have who
 * may read the file, does not count. */
static pid_t lock_holder(int fd)
{
	struct flock l = {.l_type = F_RDLCK, .l_whence = SEEK_SET};

	if (fcntl(fd, F_GETLK, &l) != 0 || l.l_type == F_UNLCK)
		return 0;
	return l.l_pid > 0 ? l.l_pid : -1;
}

/* What is written in it is not used for anything else. */
static void warn_of_leftover(const char *path, int fd)
{
	char text[32];
	int64_t pid = 0;
	ssize_t n = pread(fd, text, sizeof(text), 0);

	while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ' '))
		n--;
	if (n > 0 && util_parse_i64(text, (size_t)n, &pid) && pid > 0 && pid <= INT_MAX &&
		pid != getpid() && (kill((pid_t)pid, 0) == 0 || errno == EPERM))
		log_warning(
			"pidfile \"%s\" was left behind: process %d, which it names, is another program",
			path, (int)pid);
}

pid_t pidfile_process(const char *path)
{
	int fd = path[0] != '\0' ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
	pid_t pid;

	if (fd < 0)
		return 0;
	pid = lock_holder(fd);
	if (pid == 0)
		warn_of_leftover(path, fd);
	if (pid <= 0) {
		close(fd);
		return pid;
	}
	if (predecessor_fd >= 0)
		close(predecessor_fd);
	predecessor_fd = fd;
	return pid;
}

bool pidfile_is_taken(const char *path, char *err, size_t err_size)
{
	pid_t pid = pidfile_process(path);

	if (pid == 0)
		return false;
	if (pid < 0)
		snprintf(
			err, err_size, "pidfile \"%s\" is held by a process that is running", path);
	else
		snprintf(err, err_size, "pidfile \"%s\" names process %d, which is running", path,
			(int)pid);
	return true;
}

bool pidfile_tell_end(pid_t pid)
{
	return lock_holder(predecessor_fd) == pid && kill(pid, SIGTERM) == 0;
}

static bool pidfile_fill(int fd)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	char text[32];
	int len = snprintf(text, sizeof(text), "%d\n", (int)getpid());

	return fcntl(fd, F_SETLK, &l) == 0 && write(fd, text, (size_t)len) == len;
}

bool pidfile_prepare(const char *path, char *err, size_t err_size)
{
	int fd;

	if (path[0] == '\0')
		return true;
	snprintf(pidfile_beside, sizeof(pidfile_beside), "%s.%d", path, (int)getpid());
	(void)unlink(pidfile_beside);
	fd = open(pidfile_beside, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0 || !pidfile_fill(fd)) {
		snprintf(
			err, err_size, "could not write pidfile \"%s\": %s", path, strerror(errno));
		if (fd >= 0) {
			(void)unlink(pidfile_beside);
			close(fd);
		}
		pidfile_beside[0] = '\0';
		return false;
	}
	pidfile_fd = fd;
	util_strlcpy(pidfile_ours, path, sizeof(pidfile_ours));
	return true;
}

bool pidfile_publish(char *err, size_t err_size)
{
	if (pidfile_beside[0] == '\0')
		return true;
	if (rename(pidfile_beside, pidfile_ours) != 0) {
		snprintf(err, err_size, "could not write pidfile \"%s\": %s", pidfile_ours,
			strerror(errno));
		return false;
	}
	pidfile_beside[0] = '\0';
	pidfile_left = false;
	return true;
}

void pidfile_leave(void)
{
	pidfile_left = true;
}

/* Ours was replaced by that of a process which is gone. */
bool pidfile_again(char *err, size_t err_size)
{
	int before = pidfile_fd;
	char path[PATH_MAX];

	if (before < 0)
		return true;
	util_strlcpy(path, pidfile_ours, sizeof(path));
	if (!pidfile_prepare(path, err, err_size))
		return false;
	close(before);
	return pidfile_publish(err, err_size);
}

void pidfile_remove(void)
{
	struct stat ours, there;

	if (pidfile_beside[0] != '\0')
		(void)unlink(pidfile_beside);
	if (pidfile_fd >= 0 && !pidfile_left && fstat(pidfile_fd, &ours) == 0 &&
		lstat(pidfile_ours, &there) == 0 && ours.st_ino == there.st_ino &&
		ours.st_dev == there.st_dev)
		(void)unlink(pidfile_ours);
	if (pidfile_fd >= 0)
		close(pidfile_fd);
	if (predecessor_fd >= 0)
		close(predecessor_fd);
	pidfile_fd = predecessor_fd = -1;
}

/* --- background --- */

static void parent_waits(int fd)
{
	char byte;
	ssize_t n;

	do {
		n = read(fd, &byte, 1);
	} while (n < 0 && errno == EINTR);
	_exit(n == 1 ? 0 : 1);
}

bool process_daemonise(char *err, size_t err_size)
{
	int fds[2];
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) != 0) {
		snprintf(err, err_size, "could not create a pipe: %s", strerror(errno));
		return false;
	}
	fflush(NULL);
	pid = fork();
	if (pid < 0) {
		snprintf(err, err_size, "could not fork: %s", strerror(errno));
		close(fds[0]);
		close(fds[1]);
		return false;
	}
	if (pid > 0) {
		close(fds[1]);
		parent_waits(fds[0]);
	}
	close(fds[0]);
	started_pipe = fds[1];
	/* Not the leader of a session any more: it can never get a terminal. */
	if (setsid() < 0 || (pid = fork()) < 0) {
		snprintf(err, err_size, "could not detach: %s", strerror(errno));
		return false;
	}
	if (pid > 0)
		_exit(0);
	return true;
}

void process_started(void)
{
	int null;

	if (started_pipe < 0)
		return;
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null >= 0) {
		for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
			(void)dup2(null, fd);
		if (null > STDERR_FILENO)
			close(null);
	}
	if (write(started_pipe, "", 1) != 1)
		log_warning("the starting process is gone: %s", strerror(errno));
	close(started_pipe);
	started_pipe = -1;
}

/* --- user --- */

bool process_become(const char *user, const char *file, char *err, size_t err_size)
{
	const struct passwd *pw;

	errno = 0;
	pw = getpwnam(user);
	if (pw == NULL) {
		snprintf(err, err_size, "unix user \"%s\" %s%s", user,
			errno != 0 ? "could not be looked up: " : "does not exist",
			errno != 0 ? strerror(errno) : "");
		return false;
	}
	if (pw->pw_uid == 0) {
		snprintf(err, err_size, "unix user \"%s\" is root", user);
		return false;
	}
	if (geteuid() == pw->pw_uid && getuid() == pw->pw_uid)
		return true;
	if (file != NULL && lchown(file, pw->pw_uid, (gid_t)-1) != 0) {
		snprintf(err, err_size, "could not give \"%s\" to \"%s\": %s", file, user,
			strerror(errno));
		return false;
	}
	if (initgroups(user, pw->pw_gid) != 0 || setgid(pw->pw_gid) != 0 ||
		setuid(pw->pw_uid) != 0) {
		snprintf(err, err_size, "could not become unix user \"%s\": %s", user,
			strerror(errno));
		return false;
	}
	if (setuid(0) == 0 || geteuid() == 0) {
		snprintf(err, err_size, "unix user \"%s\" is still root", user);
		return false;
	}
	return true;
}

/* --- core files --- */

void process_allow_core(bool allowed)
{
	if (prctl(PR_SET_DUMPABLE, allowed ? 1UL : 0UL, 0UL, 0UL, 0UL) != 0)
		log_warning("core files could not be %s: %s", allowed ? "allowed" : "forbidden",
			strerror(errno));
}

/* --- descriptors --- */

unsigned long process_raise_files(void)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) != 0)
		return 1024;
	if (lim.rlim_cur < lim.rlim_max) {
		rlim_t was = lim.rlim_cur;

		lim.rlim_cur = lim.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &lim) != 0)
			lim.rlim_cur = was;
	}
	return lim.rlim_cur == RLIM_INFINITY ? ULONG_MAX : (unsigned long)lim.rlim_cur;
}

/* --- systemd --- */

/* Without its address there is nobody to tell. */
void process_is_one_of_many(void)
{
	(void)unsetenv("NOTIFY_SOCKET");
}

#ifdef HAVE_SYSTEMD

void process_notify_ready(void)
{
	(void)sd_notify(0, "READY=1");
}

void process_notify_reloading(void)
{
	(void)sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%lld", (long long)loop_clock());
}

void process_notify_stopping(void)
{
	(void)sd_notify(0, "STOPPING=1");
}

void process_notify_successor(pid_t pid)
{
	(void)sd_notifyf(0, "MAINPID=%d", (int)pid);
}

#else

void process_notify_ready(void)
{
}

void process_notify_reloading(void)
{
}

void process_notify_stopping(void)
{
}

void process_notify_successor(pid_t pid)
{
	(void)pid;
}

#endif
