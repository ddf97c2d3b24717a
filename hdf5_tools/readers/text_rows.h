/* Text files of annotations, line by line, plain or .gz: lists, labels, CSV and TSV. Memory is that of the
 * longest line. Errors are KOLO_EINPUT (KOLO_EIO: reading failed) and begin with path and line. */
#ifndef HDF5_TOOLS_READERS_TEXT_ROWS_H
#define HDF5_TOOLS_READERS_TEXT_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct text_rows {
    const char *path; /* the caller's */
    int64_t line;     /* of the row last read, from 1 */
    void *file;
    char *buffer; /* bytes read and not yet given out: from .. to */
    size_t capacity, from, to;
    bool end;
} text_rows;

#define TEXT_MOST_LINE (1 << 24) /* bytes; a longer line is no row of a table */

int text_open(text_rows *t, const char *path);
/* 1 and the next line, without its end (LF or CR LF) and a byte order mark before the first, ended
 * by a zero and the caller's to change until the next call; 0 at the end of the file. A zero byte
 * in a line is an error. */
int text_next(text_rows *t, char **line);
void text_close(text_rows *t);
/* All lines of a file but empty ones, until one fails (negative). */
typedef int (*text_row)(void *of, const text_rows *t, char *line);
int text_each(const char *path, text_row row, void *of);
/* KOLO_EINPUT with "path:line: " before the text. */
int text_fail(const text_rows *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Cuts `line` at every separator; returns how many fields there are, of which the first
 * `most` are in `fields`. */
int text_split(char *line, char separator, char **fields, int most);
/* Cuts at blanks and tabs, several of which count as one. */
int text_words(char *line, char **fields, int most);
/* Cuts a line of comma separated values (RFC 4180): "quoted, with ""quotes""". Negative: a quote is not
 * closed on this line, or something follows the closing one. */
int text_split_csv(char *line, char **fields, int most);

/* The whole text is a number: decimal and finite; decimal and of 64 bits. Blanks around it are
 * no part of a number. */
bool text_number(const char *text, double *value);
bool text_integer(const char *text, int64_t *value);
bool text_is_utf8(const char *text);        /* overlong forms and halves of characters are none */
size_t text_put_utf8(char *to, uint32_t c); /* 1 to 4 bytes, of which it returns how many */
/* Does the text begin, or end, with this? */
bool text_begins(const char *text, const char *with);
bool text_ends(const char *text, const char *with);

#endif
