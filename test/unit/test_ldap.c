/*
 * LDAP rules: what a URL says, what an option of its own says instead, what is refused, and the
 * addresses and filters that are made of it. No server is asked. As in Postgres, a URL that names
 * no scope means the base alone, and without a URL it is the subtree.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "../../src/auth/ldap.c"

#ifdef HAVE_LDAP

static void test_urls(void **state)
{
	static const struct {
		const char *options, *uris, *basedn, *attribute, *filter;
		int scope;
	} cases[] = {
		{"ldapurl=ldap://h/dc=x", "ldap://h:389", "dc=x", NULL, NULL, LDAP_SCOPE_BASE},
		{"ldapurl=ldaps://h/dc=x", "ldaps://h:636", "dc=x", NULL, NULL, LDAP_SCOPE_BASE},
		{"ldapurl=LDAP://h/dc=x", "ldap://h:389", "dc=x", NULL, NULL, LDAP_SCOPE_BASE},
		{"ldapurl=ldap://h:1389/dc=x,dc=y?cn?one", "ldap://h:1389", "dc=x,dc=y", "cn", NULL,
			LDAP_SCOPE_ONELEVEL},
		{"ldapurl=ldap://h/dc=x??base", "ldap://h:389", "dc=x", NULL, NULL,
			LDAP_SCOPE_BASE},
		{"ldapurl=ldap://h/dc=x?uid?sub?(objectClass=person)", "ldap://h:389", "dc=x",
			"uid", "(objectClass=person)", LDAP_SCOPE_SUBTREE},
		{"ldapurl=ldap://h/dc=a%20b%2cc?uid,mail", "ldap://h:389", "dc=a b,c", "uid", NULL,
			LDAP_SCOPE_BASE},
		{"ldapurl=ldap://[::1]/dc=x", "ldap://[::1]:389", "dc=x", NULL, NULL,
			LDAP_SCOPE_BASE},
		{"ldapurl=ldap://[fe80::2]:3890/dc=x", "ldap://[fe80::2]:3890", "dc=x", NULL, NULL,
			LDAP_SCOPE_BASE},
		/* what is said beside it wins, wherever it stands */
		{"ldapserver=other\nldapurl=ldap://h/dc=x", "ldap://other:389", "dc=x", NULL, NULL,
			LDAP_SCOPE_BASE},
		{"ldapurl=ldap://h:1/dc=x?cn\nldapport=2\nldapbasedn=dc=z\nldapsearchattribute=mail",
			"ldap://h:2", "dc=z", "mail", NULL, LDAP_SCOPE_BASE},
		{"ldapurl=ldap://h/dc=x\nldapscheme=ldaps\nldapport=636", "ldaps://h:636", "dc=x",
			NULL, NULL, LDAP_SCOPE_BASE},
		/* without one */
		{"ldapserver=a b  c\nldapbasedn=dc=x", "ldap://a:389 ldap://b:389 ldap://c:389",
			"dc=x", NULL, NULL, LDAP_SCOPE_SUBTREE},
		{"ldapserver=::1 [::2] h\nldapscheme=ldaps\nldapbasedn=dc=x",
			"ldaps://[::1]:636 ldaps://[::2]:636 ldaps://h:636", "dc=x", NULL, NULL,
			LDAP_SCOPE_SUBTREE},
		/* the last one counts */
		{"ldapserver=a\nldapserver=b\nldapbasedn=dc=x", "ldap://b:389", "dc=x", NULL, NULL,
			LDAP_SCOPE_SUBTREE},
		{"ldapserver=a\nldapprefix=cn=\nldapsuffix=,dc=x", "ldap://a:389", NULL, NULL, NULL,
			LDAP_SCOPE_SUBTREE},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct rule r = {0};
		char uris[256];
		const char *why = rule_read(&r, cases[i].options);

		if (why != NULL)
			fail_msg("%s: %s", cases[i].options, why);
		assert_true(uris_of(&r, uris, sizeof(uris)));
		assert_string_equal(uris, cases[i].uris);
		assert_int_equal(r.basedn != NULL, cases[i].basedn != NULL);
		if (r.basedn != NULL)
			assert_string_equal(r.basedn, cases[i].basedn);
		assert_int_equal(r.attribute != NULL, cases[i].attribute != NULL);
		if (r.attribute != NULL)
			assert_string_equal(r.attribute, cases[i].attribute);
		assert_int_equal(r.filter != NULL, cases[i].filter != NULL);
		if (r.filter != NULL)
			assert_string_equal(r.filter, cases[i].filter);
		assert_int_equal(r.scope, cases[i].scope);
		rule_clear(&r);
	}
}

static void test_refused(void **state)
{
	static const struct {
		const char *options, *why;
	} cases[] = {
		{"", "ldapserver or ldapurl"},
		{"ldapbasedn=dc=x", "ldapserver or ldapurl"},
		{"ldapurl=", "cannot be read"},
		{"ldapurl=h", "cannot be read"},
		{"ldapurl=http://h/dc=x", "cannot be read"},
		{"ldapurl=ldap:/h/dc=x", "cannot be read"},
		{"ldapurl=ldap://h:port/dc=x", "cannot be read"},
		{"ldapurl=ldap://[::1/dc=x", "cannot be read"},
		{"ldapurl=ldap://h/dc=x?uid?deep", "cannot be read"},
		{"ldapurl=ldap://h/dc=x?uid?sub?(a=b)?!ext?more", "cannot be read"},
		{"ldapurl=ldap:///dc=x", "name of a server"},
		{"ldapurl=ldapi://%2ftmp%2fs/dc=x", "ldapscheme is"},
		{"ldapurl=ldap://h", "ldapbasedn, ldapprefix"},
		{"ldapurl=ldap://h/", "ldapbasedn, ldapprefix"},
		{"ldapurl=ldap://h:70000/dc=x", "ldapport"},
		{"ldapurl=ldap://h/dc=x\nldapprefix=cn=", "cannot be used together"},
		{"ldapserver=h\nldapbasedn=dc=x\nldapport=0", "ldapport"},
		{"ldapserver=h\nldapbasedn=dc=x\nldapport=65536", "ldapport"},
		{"ldapserver=h\nldapbasedn=dc=x\nldapport=389x", "ldapport"},
		{"ldapserver=h\nldapbasedn=dc=x\nldapport=-1", "ldapport"},
		{"ldapserver=h\nldapbasedn=dc=x\nldapport=99999999999", "ldapport"},
		{"ldapserver=h\nldapbasedn=dc=x\nldapscheme=http", "ldapscheme is"},
		{"ldapserver=h\nldapbasedn=dc=x\nldaptls=yes", "ldaptls is"},
		{"ldapserver=h\nldapprefix=a\nldapbinddn=b", "cannot be used together"},
		{"ldapserver=h\nldapbasedn=x\nldapsearchattribute=a\nldapsearchfilter=b",
			"cannot be used together"},
		{"ldapserver=h\nldapsize=1", "not known"},
		{"ldapserver", "not known"},
		{"=h", "not known"},
		{"ldapserver=h\n\n", "not known"},
	};
	char err[256];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		const char *why = ldap_check_options(cases[i].options, err, sizeof(err));

		if (why == NULL || strstr(err, cases[i].why) == NULL)
			fail_msg("%s: %s", cases[i].options, why ? err : "accepted");
	}
	assert_null(ldap_check_options("ldapurl=ldap://h/dc=x", err, sizeof(err)));
}

static void test_filters(void **state)
{
	static const struct {
		const char *options, *filter;
	} cases[] = {
		{"ldapurl=ldap://h/dc=x", "(uid=ann)"},
		{"ldapurl=ldap://h/dc=x?mail", "(mail=ann)"},
		{"ldapurl=ldap://h/dc=x?mail?"
		 "?(a=b)",
			"(&(mail=ann)(a=b))"},
		{"ldapurl=ldap://h/dc=x?mail??a=b", "(&(mail=ann)(a=b))"},
		{"ldapserver=h\nldapbasedn=x\nldapsearchfilter=(|(uid=$username)(mail=$username@x))",
			"(|(uid=ann)(mail=ann@x))"},
		{"ldapserver=h\nldapbasedn=x\nldapsearchfilter=$username", "ann"},
		{"ldapserver=h\nldapbasedn=x\nldapsearchfilter=", "(uid=ann)"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct rule r = {0};
		char filter[64], tiny[4];

		assert_null(rule_read(&r, cases[i].options));
		assert_true(filter_of(&r, "ann", filter, sizeof(filter)));
		assert_string_equal(filter, cases[i].filter);
		assert_int_equal(
			filter_of(&r, "ann", tiny, sizeof(tiny)), strlen(filter) < sizeof(tiny));
		rule_clear(&r);
	}
}

/* A name that would be more than a name in a filter asks no server. */
static void test_names_that_cannot_be_searched(void **state)
{
	static const char *const names[] = {"*", "a)(b=c", "a\\2a", "a/b"};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct outside_job j = {.user = (char *)names[i], .password = (char *)"x"};
		struct rule r = {0};
		bool wrong = false;

		assert_null(rule_read(&r, "ldapurl=ldap://127.0.0.1:1/dc=x"));
		assert_null(search(&r, &j, &wrong));
		assert_true(wrong);
		assert_non_null(strstr(j.note, "cannot be used"));
		rule_clear(&r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_urls),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_filters),
		cmocka_unit_test(test_names_that_cannot_be_searched),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
	return 0; /* this program has no LDAP */
}

#endif
