/* JSON output: strings and numbers that every reader takes. (Reading is cJSON's.) */
#ifndef KOLO_BASE_JSON_H
#define KOLO_BASE_JSON_H

#include <stdio.h>

/* A quoted string; control characters escaped, bytes that are not UTF-8 replaced by U+FFFD. NULL: null. */
void kolo_json_string(FILE *file, const char *text);
/* The same as text; caller frees. NULL: error text set. */
char *kolo_json_quote(const char *text);
/* A number with so many digits (17 reads back exactly); NaN and infinities, which JSON lacks: null. */
void kolo_json_number(FILE *file, double value, int digits);
/* "ts":T,"dur":D of a Chrome trace, from seconds. Both ends are rounded to nanoseconds, which is what viewers
 * count in, so that spans that meet meet there, too: of spans of a row that overlap they show one. */
void kolo_json_span(FILE *file, double begin, double end);

#endif
