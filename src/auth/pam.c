/*
 * PAM: is that the password of that user, and may he come in? Runs in a thread of outside.c.
 */
#include "outside_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef HAVE_PAM
#include <security/pam_appl.h>

#define SYSTEM_DIR "/etc/pam.d"

/* Answers the one question that can be answered: for the password. */
static int converse(int n, const struct pam_message **msg, struct pam_response **ret, void *arg)
{
	const struct outside_job *j = arg;
	struct pam_response *r;

	if (n <= 0 || n > PAM_MAX_NUM_MSG || (r = calloc((size_t)n, sizeof(*r))) == NULL)
		return PAM_CONV_ERR;
	for (int i = 0; i < n; i++) {
		if (msg[i]->msg_style == PAM_ERROR_MSG || msg[i]->msg_style == PAM_TEXT_INFO)
			continue;
		if (msg[i]->msg_style == PAM_PROMPT_ECHO_OFF)
			r[i].resp = strdup(j->password);
		if (r[i].resp == NULL)
			goto failed;
	}
	*ret = r;
	return PAM_SUCCESS;
failed:
	for (int i = 0; i < n; i++) {
		if (r[i].resp != NULL)
			util_erase(r[i].resp, strlen(r[i].resp));
		free(r[i].resp);
	}
	free(r);
	return PAM_CONV_ERR;
}

static bool has_file(const char *dir, const char *name)
{
	char path[4400];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return access(path, R_OK) == 0;
}

/* pamservice=; else "qbouncer", and "pgbouncer" where only that is there. */
static void service_of(const struct outside_job *j, char *dst, size_t size)
{
	const char *dir = j->pam_dir[0] != '\0' ? j->pam_dir : SYSTEM_DIR;
	const char *own = strstr(j->options, "pamservice=");

	if (own != NULL && (own == j->options || own[-1] == '\n')) {
		own += strlen("pamservice=");
		snprintf(dst, size, "%.*s", (int)strcspn(own, "\n"), own);
		return;
	}
	snprintf(dst, size, "%s", has_file(dir, "qbouncer") ? "qbouncer" : "pgbouncer");
}

/* In a folder of our own. The library would lose memory over one that is not there. */
static bool is_there(const struct outside_job *j, const char *service)
{
	return j->pam_dir[0] == '\0' || has_file(j->pam_dir, service) ||
	       has_file(j->pam_dir, "other");
}

/* pam_unix and others let PAM sleep after a wrong password, in a thread that the next login waits
 * for. login_failure_delay holds the answer back, and nobody else's. */
static void no_delay(int rc, unsigned usec, void *arg)
{
	(void)rc, (void)usec, (void)arg;
}

static int steps(pam_handle_t *h, struct outside_job *j, const char **ret_what)
{
	const void *name = NULL;
	int rc;

	*ret_what = "set up";
	rc = pam_set_item(h, PAM_FAIL_DELAY, (const void *)no_delay);
	if (rc == PAM_SUCCESS && j->address[0] != '\0')
		rc = pam_set_item(h, PAM_RHOST, j->address);
	if (rc == PAM_SUCCESS) {
		*ret_what = "authentication";
		/* pam_unix with nullok takes any password for an account that has none */
		rc = pam_authenticate(h, PAM_SILENT | PAM_DISALLOW_NULL_AUTHTOK);
	}
	if (rc == PAM_SUCCESS) {
		*ret_what = "account";
		rc = pam_acct_mgmt(h, PAM_SILENT);
	}
	if (rc != PAM_SUCCESS)
		return rc;
	/* a module may have mapped the name: then it is not this user who was proved */
	*ret_what = "name";
	rc = pam_get_item(h, PAM_USER, &name);
	return rc == PAM_SUCCESS && (name == NULL || strcmp(name, j->user) != 0) ? PAM_USER_UNKNOWN
										 : rc;
}

static bool is_wrong(int rc)
{
	return rc == PAM_AUTH_ERR || rc == PAM_USER_UNKNOWN || rc == PAM_PERM_DENIED ||
	       rc == PAM_ACCT_EXPIRED || rc == PAM_NEW_AUTHTOK_REQD || rc == PAM_MAXTRIES;
}

enum outside_verdict pam_check(struct outside_job *j)
{
	struct pam_conv conv = {.conv = converse, .appdata_ptr = j};
	const char *what = "start";
	char service[64];
	pam_handle_t *h = NULL;
	int rc;

	service_of(j, service, sizeof(service));
	if (strchr(service, '/') != NULL || !is_there(j, service)) {
		snprintf(j->note, sizeof(j->note), "PAM: there is no service \"%s\"", service);
		return OUTSIDE_FAILED;
	}
	rc = pam_start_confdir(
		service, j->user, &conv, j->pam_dir[0] != '\0' ? j->pam_dir : NULL, &h);
	if (rc == PAM_SUCCESS)
		rc = steps(h, j, &what);
	if (rc != PAM_SUCCESS)
		snprintf(j->note, sizeof(j->note), "PAM service \"%s\", %s: %.150s", service, what,
			pam_strerror(h, rc));
	if (h != NULL)
		pam_end(h, rc);
	return rc == PAM_SUCCESS ? OUTSIDE_GOOD : is_wrong(rc) ? OUTSIDE_WRONG : OUTSIDE_FAILED;
}

#else

enum outside_verdict pam_check(struct outside_job *j)
{
	snprintf(j->note, sizeof(j->note), "built without PAM");
	return OUTSIDE_FAILED;
}

#endif
