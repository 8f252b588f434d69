/*
 * Base64 as SCRAM uses it (RFC 4648, section 4): padded, no line breaks, strict on input so that
 * one value has one text. Entry points: base64_put, base64_get.
 */
#include "scram_int.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_put(struct buf *out, const uint8_t *p, size_t len)
{
	while (len > 0) {
		size_t n = len < 3 ? len : 3;
		uint32_t v = (uint32_t)p[0] << 16 | (n > 1 ? (uint32_t)p[1] << 8 : 0) |
			     (n > 2 ? p[2] : 0);
		char quad[4] = {alphabet[v >> 18], alphabet[v >> 12 & 63],
			n > 1 ? alphabet[v >> 6 & 63] : '=', n > 2 ? alphabet[v & 63] : '='};

		buf_put(out, quad, sizeof(quad));
		p += n;
		len -= n;
	}
}

static int digit_value(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	if (c == '+')
		return 62;
	return c == '/' ? 63 : -1;
}

bool base64_get(const char *s, size_t len, uint8_t *dst, size_t size, size_t *ret_len)
{
	size_t pad = 0, n = 0;
	uint32_t v = 0;

	if (len % 4 != 0)
		return false;
	while (pad < 2 && pad < len && s[len - 1 - pad] == '=')
		pad++;
	if (len / 4 * 3 - pad > size)
		return false;
	for (size_t i = 0; i < len - pad; i++) {
		int d = digit_value(s[i]);

		if (d < 0)
			return false;
		v = v << 6 | (uint32_t)d;
		switch (i % 4) {
		case 0:
			break;
		case 1:
			dst[n++] = (uint8_t)(v >> 4);
			break;
		case 2:
			dst[n++] = (uint8_t)(v >> 2);
			break;
		default:
			dst[n++] = (uint8_t)v;
			break;
		}
	}
	/* Bits behind the last byte must be zero. */
	if ((pad == 1 && (v & 3)) || (pad == 2 && (v & 15)))
		return false;
	*ret_len = n;
	return true;
}
