/* Loops compiled twice: for the machine the build targets and for AVX2, chosen at load. AVX2 without FMA, so both give
 * the same bits. Such a function holds no OpenMP (the outlined part would not be cloned): a parallel caller cuts the work. Its name is
 * its own in all files: clang 14 makes the chooser of a static one global. */
#ifndef KOLO_BASE_WIDE_H
#define KOLO_BASE_WIDE_H

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define KOLO_WIDE __attribute__((target_clones("default", "avx2")))
#else /* sanitizers are not ready yet when the choice is made */
#define KOLO_WIDE
#endif

#endif
