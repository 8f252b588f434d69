/*
 * The md5 password scheme of Postgres. Entry points: md5_secret, md5_response. When the library
 * refuses md5 (FIPS), the result is all zeros, which equals no text that a peer can send.
 */
#include "wire/scram.h"

#include <string.h>
#include <openssl/evp.h>

/* "md5" + hex(md5(a || b)) */
static void md5_text(char dst[36], const void *a, size_t a_len, const void *b, size_t b_len)
{
	uint8_t digest[EVP_MAX_MD_SIZE];
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	bool ok = ctx && EVP_DigestInit_ex(ctx, EVP_md5(), NULL) == 1 &&
		  EVP_DigestUpdate(ctx, a, a_len) == 1 && EVP_DigestUpdate(ctx, b, b_len) == 1 &&
		  EVP_DigestFinal_ex(ctx, digest, NULL) == 1;

	EVP_MD_CTX_free(ctx);
	memset(dst, 0, 36);
	if (!ok)
		return;
	memcpy(dst, "md5", 3);
	util_hex(dst + 3, digest, 16);
	util_erase(digest, sizeof(digest));
}

void md5_secret(char dst[36], const char *password, const char *user)
{
	md5_text(dst, password, strlen(password), user, strlen(user));
}

void md5_response(char dst[36], const char md5_secret_text[36], const uint8_t salt[4])
{
	char hex[32];

	memcpy(hex, md5_secret_text + 3, sizeof(hex));
	md5_text(dst, hex, sizeof(hex), salt, 4);
	util_erase(hex, sizeof(hex));
}
