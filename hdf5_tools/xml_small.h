/* XML files of annotations (VOC): elements and their text. The file is read whole, one element after the other is
 * looked at; attributes, comments and processing instructions are checked and passed over.
 *
 *   while ((rc = xml_child(x, &name)) > 0) ... xml_text, or children of its own, or xml_skip ...
 *
 * A document type (<!DOCTYPE) is refused: with it go entities that grow without bound and files read from elsewhere,
 * and no annotations have one. Bytes must be UTF-8 whatever encoding is declared. Errors are KOLO_EINPUT and begin with
 * path and line. */
#ifndef HDF5_TOOLS_XML_SMALL_H
#define HDF5_TOOLS_XML_SMALL_H

#include <stdbool.h>
#include <stddef.h>

#define XML_MOST_BYTES (1 << 26)
#define XML_MOST_DEPTH 64

typedef struct xml_reader {
    char *path, *data, *at;
    int depth;
    bool is_empty; /* the element just entered is <like this/> */
    struct {
        const char *text;
        size_t length;
    } open[XML_MOST_DEPTH]; /* names of the elements that we are in */
    char *text, *name;      /* given to the caller */
} xml_reader;

int xml_open(xml_reader *x, const char *path);
void xml_close(xml_reader *x);
/* 1: entered the next element inside this one, or the outermost at first; *name is valid until the next call.
 * 0: there is none, this element has been left. Text in between is passed over. */
int xml_child(xml_reader *x, const char **name);
/* The text of this element, without blanks around it, and leaves it; an element in it is an error. Valid until the next
 * call. */
int xml_text(xml_reader *x, const char **text);
int xml_skip(xml_reader *x);   /* leaves this element */
int xml_finish(xml_reader *x); /* after the outermost element: nothing may follow */
/* KOLO_EINPUT with "path:line: " before the text. */
int xml_fail(const xml_reader *x, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
