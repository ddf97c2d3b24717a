/* Log lines to stderr: "[time] [rank host] level: text". Rank 0 alone, unless a function says otherwise. */
#ifndef KOLO_BASE_LOG_H
#define KOLO_BASE_LOG_H

enum kolo_log_level { KOLO_LOG_ERROR, KOLO_LOG_WARN, KOLO_LOG_INFO, KOLO_LOG_DEBUG };

/* Which rank this is; called once by launch/ when rank and host are known. host is copied. */
void kolo_log_identity(int rank, int size, const char *host);
void kolo_log_set_level(enum kolo_log_level level);

/* All ranks. One write(2) a line, so that lines of many ranks do not mix. */
void kolo_log(enum kolo_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Rank 0 only. */
void kolo_log0(enum kolo_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define kolo_error(...) kolo_log(KOLO_LOG_ERROR, __VA_ARGS__)
#define kolo_warn(...) kolo_log(KOLO_LOG_WARN, __VA_ARGS__)
#define kolo_info(...) kolo_log0(KOLO_LOG_INFO, __VA_ARGS__)
#define kolo_debug(...) kolo_log(KOLO_LOG_DEBUG, __VA_ARGS__)

/* Text from outside that goes to a terminal, in place: without escape sequences and other control
 * characters, which become `?` (a tab a space), but with its line breaks. Returns it. */
char *kolo_plain(char *text);

#endif
