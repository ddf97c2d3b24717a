/* Which MPI and PMIx this program was built with, and which it runs with. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch/launch.h"

#if defined(KOLO_MPI) && KOLO_MPI
#include <mpi.h>

/* The words of a library about itself, of several lines, up to its version. */
static void shorten(const char *text, char *to, size_t bytes)
{
    size_t n = 0;
    bool blank = true, number = false;
    for (; *text && n + 1 < bytes && *text != ','; text++) {
        const bool space = isspace((unsigned char)*text) != 0;
        if (space && (number || *text == '\n')) break;
        if (!space) number |= isdigit((unsigned char)*text) && blank;
        if (!space || !blank) to[n++] = space ? ' ' : *text;
        blank = space || (*text == 'v' && blank);
    }
    while (n && to[n - 1] == ' ') n--;
    to[n] = 0;
}

static void fill_mpi(kolo_library *l)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    l->name = "MPI";
#if defined(MPICH_VERSION)
    snprintf(l->built, sizeof l->built, "MPICH Version: %s", MPICH_VERSION);
#elif defined(OMPI_MAJOR_VERSION)
    snprintf(l->built, sizeof l->built, "Open MPI v%d.%d.%d", OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION,
             OMPI_RELEASE_VERSION);
#else
    snprintf(l->built, sizeof l->built, "MPI %d.%d", MPI_VERSION, MPI_SUBVERSION);
#endif
    MPI_Get_library_version(text, &length);
    shorten(text, l->loaded, sizeof l->loaded);
    l->differs = strcmp(l->built, l->loaded) != 0;
}
#endif

#if defined(KOLO_PMIX) && KOLO_PMIX
#include <pmix.h>

/* The first x.y[.z] in a text. */
static void find_version(const char *text, char *to, size_t bytes)
{
    while (*text && !isdigit((unsigned char)*text)) text++;
    snprintf(to, bytes, "%.*s", (int)strspn(text, "0123456789."), text);
}

static void fill_pmix(kolo_library *l)
{
    const char *server = getenv("PMIX_VERSION");
    l->name = "PMIx";
#if defined(PMIX_VERSION_MAJOR)
    snprintf(l->built, sizeof l->built, "%d.%d.%d", (int)PMIX_VERSION_MAJOR, (int)PMIX_VERSION_MINOR,
             (int)PMIX_VERSION_RELEASE);
#endif
    find_version(PMIx_Get_version(), l->loaded, sizeof l->loaded);
    find_version(server ? server : "", l->server, sizeof l->server);
    l->differs = strcmp(l->built, l->loaded) != 0 || (*l->server && atoi(l->server) != atoi(l->loaded));
}
#endif

int kolo_launch_libraries(kolo_library list[2])
{
    int n = 0;
    memset(list, 0, 2 * sizeof *list);
#if defined(KOLO_MPI) && KOLO_MPI
    fill_mpi(&list[n++]);
#endif
#if defined(KOLO_PMIX) && KOLO_PMIX
    fill_pmix(&list[n++]);
#endif
    return n;
}
