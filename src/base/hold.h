/* Signals that ask a program for an orderly end, and that come before it has its handlers. */
#ifndef KOLO_BASE_HOLD_H
#define KOLO_BASE_HOLD_H

#include <signal.h>
#include <stddef.h>

/* KOLO_HOLD_SIGNALS(SIGUSR1, ...); in the file of main: they wait from the moment that the program
 * and its libraries are loaded, before any library's initialisation, until kolo_release_signals. An
 * exec keeps them waiting. */
#define KOLO_HOLD_SIGNALS(...)                                                                       \
    static const int held_signals[] = {__VA_ARGS__};                                                 \
    static void hold_signals(void)                                                                   \
    {                                                                                                \
        mask_signals(SIG_BLOCK, sizeof held_signals / sizeof *held_signals, held_signals);           \
    }                                                                                                \
    __attribute__((section(".preinit_array"), used)) static void (*const hold_signals_first)(void) = \
        hold_signals
/* What came meanwhile is delivered now. Children started before would have these signals blocked. */
#define kolo_release_signals() \
    mask_signals(SIG_UNBLOCK, sizeof held_signals / sizeof *held_signals, held_signals)

static inline void mask_signals(int how, size_t n, const int *numbers)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < n; i++) sigaddset(&set, numbers[i]);
    sigprocmask(how, &set, NULL);
}

#endif
