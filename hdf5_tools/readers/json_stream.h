/* A JSON file (RFC 8259) read from front to back without keeping it: the caller asks for what should come
 * next. Memory is one block and the longest string, whatever the file's size.
 *
 *   json_object(j);  while ((rc = json_key(j, &key)) > 0) ... one value ...      {"key": value, ...}
 *   json_array(j);   while ((rc = json_more(j)) > 0) ... one value ...           [value, ...]
 *
 * Every value must be read or passed over with json_skip, which also checks that it is well formed. Errors
 * are KOLO_EINPUT (KOLO_EIO: reading failed) and name path, line and byte. */
#ifndef HDF5_TOOLS_READERS_JSON_STREAM_H
#define HDF5_TOOLS_READERS_JSON_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_MOST_DEPTH 64 /* objects and arrays in each other */
/* bytes of a string that the caller reads; strings passed over may be longer */
#define JSON_MOST_STRING (1 << 24)

typedef struct json_stream {
    char *path;
    int fd, depth;
    bool own_file;
    uint64_t is_object, is_begun; /* bit d: of the container at depth d */
    uint8_t *block;               /* bytes at .. end of it are not yet read */
    size_t at, end;
    int64_t start, stop; /* the part of the file that is read */
    int64_t block_offset;
    int64_t counted, lines; /* lines up to that byte, for messages */
    char *text;             /* the last string or number */
    size_t text_capacity;
} json_stream;

int json_open(json_stream *j, const char *path);
/* `bytes` bytes from `offset` of a file, as of a member of a tar. The file stays the caller's. */
int json_open_part(json_stream *j, const char *path, int fd, int64_t offset, int64_t bytes);
void json_close(json_stream *j);
/* After the outermost value: nothing but blanks may follow. */
int json_finish(json_stream *j);

/* First byte of the next value, from which its kind follows: { [ " t f n, or '0' for a number. Negative:
 * error. */
int json_peek(json_stream *j);
int json_object(json_stream *j); /* enters */
int json_array(json_stream *j);  /* enters */
/* 1 and the next key; 0: the object has ended, and is left */
int json_key(json_stream *j, const char **key);
/* 1: there is a next value; 0: the array has ended, and is left */
int json_more(json_stream *j);
int json_number(json_stream *j, double *value);   /* finite */
int json_integer(json_stream *j, int64_t *value); /* written without fraction and exponent */
/* UTF-8, ended by a zero, valid until the next call; a string with a zero in it is an error. */
int json_string(json_stream *j, const char **text);
int json_skip(json_stream *j);

/* Where the next value begins: to come back later, in the same container. */
typedef struct json_mark {
    int64_t offset;
    int depth;
    uint64_t is_object, is_begun;
} json_mark;

int json_tell(json_stream *j, json_mark *mark);
int json_return(json_stream *j, const json_mark *mark);

/* KOLO_EINPUT with "path:line, byte N: " before the text: where the stream stands. */
int json_fail(json_stream *j, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
