/* Errors: every function that can fail returns 0 or a negative status and leaves one sentence in a
 * thread-local text. The negated status is the exit code of a program that cannot go on; only main()
 * in src/cmd and hdf5_tools ends a process. */
#ifndef KOLO_ERROR_H
#define KOLO_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

enum kolo_status {
    KOLO_OK = 0,
    KOLO_EINPUT = -2,     /* bad input: data, shard, image, weights                    */
    KOLO_EIO = -3,        /* read, write, disk full, quota                             */
    KOLO_ELAUNCH = -69,   /* launcher, MPI, PMIx, a dead peer                          */
    KOLO_EINTERNAL = -70, /* a defect of this program or of a library below it         */
    KOLO_ENOMEM = -71,    /* an allocation failed: memory of the machine or of a GPU   */
    KOLO_EREQUEUE = -75,  /* stopped on request, checkpoint written: run it again      */
    KOLO_ECONFIG = -78,   /* recipe, flag, environment, or a job that cannot fit       */
};

/* Sets the calling thread's error text and returns `status`. Say what, where, and what to do:
 *   return kolo_fail(KOLO_EINPUT, "%s: sample %ld is truncated; pack this split again", path, i);   */
int kolo_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prefixes the text already set ("reading the checkpoint: " + text) and returns `status`. */
int kolo_fail_in(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The calling thread's last error text; never NULL. Valid until the thread's next kolo_fail. */
const char *kolo_error_text(void);

#define KOLO_TRY(call)                       \
    do {                                     \
        int kolo_try_ = (call);              \
        if (kolo_try_ < 0) return kolo_try_; \
    } while (0)

#define KOLO_TRY_GOTO(rc, call)  \
    do {                         \
        (rc) = (call);           \
        if ((rc) < 0) goto fail; \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
