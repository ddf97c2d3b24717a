/* XML files of annotations (VOC) by libxml2: elements and their text, one after the other; attributes,
 * comments and processing instructions are passed over.
 *
 *   while ((rc = xml_child(x, &name)) > 0) ... xml_text, or children of its own, or xml_skip ...
 *
 * Nothing but the file is read. A document type (<!DOCTYPE) is refused before libxml2 sees it: with it go
 * entities that grow without bound and files read from elsewhere, and no annotations have one. Bytes must be
 * UTF-8 whatever encoding is declared. Errors are KOLO_EINPUT and begin with path and line. */
#ifndef HDF5_TOOLS_READERS_XML_H
#define HDF5_TOOLS_READERS_XML_H

#include <stdbool.h>
#include <stddef.h>

#define XML_MOST_BYTES (1 << 26)
#define XML_MOST_DEPTH 64

typedef struct xml_reader {
    char *path, *data;
    struct _xmlTextReader *parser;
    int depth;     /* of the elements that we are in */
    bool is_empty; /* the element just entered is <like this/> */
    char *text;    /* given to the caller, of so many bytes at most as the file has */
    char *fault;   /* the first error of libxml2 */
    long fault_line;
} xml_reader;

/* 0, or KOLO_ECONFIG: this program was built without libxml2, and what to do. */
int xml_built(void);
int xml_open(xml_reader *x, const char *path);
void xml_close(xml_reader *x);
/* 1: entered the next element inside this one, or the outermost at first; *name is valid until xml_close. 0:
 * there is none, this element has been left. Text in between is passed over. */
int xml_child(xml_reader *x, const char **name);
/* The text of this element, without blanks around it, and leaves it; an element in it is an error. Valid
 * until the next call. */
int xml_text(xml_reader *x, const char **text);
int xml_skip(xml_reader *x);   /* leaves this element */
int xml_finish(xml_reader *x); /* after the outermost element: nothing may follow */
/* KOLO_EINPUT with "path:line: " before the text: the line where the element begins that we are in or have
 * left last. */
int xml_fail(const xml_reader *x, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
