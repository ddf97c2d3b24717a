/* Loops compiled several times, chosen at load: for the machine the build targets and for AVX2, without FMA,
 * so both give the same bits; also for AVX-512, which has FMA in it, in files that do not add what they
 * multiply, nor does the compiler then (-ffp-contract=off, of all but operations). Such a function holds no
 * OpenMP (the outlined part would not be cloned): a parallel caller cuts the work. Its name is its own in all
 * files: clang 14 makes the chooser of a static one global. */
#ifndef KOLO_BASE_WIDE_H
#define KOLO_BASE_WIDE_H

/* The choosers run before the sanitizers of addresses and threads are ready. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define KOLO_NO_CLONES 1
#endif
#endif
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    !defined(KOLO_NO_CLONES)
#define KOLO_CLONES __attribute__((target_clones("default", "avx2")))
#define KOLO_CLONES_512 __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define KOLO_CLONES
#define KOLO_CLONES_512
#endif

#endif
