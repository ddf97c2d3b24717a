/* An earlier name of kolo/comm.h. */
#ifndef KOLO_PUBLIC_BUCKETS_H
#define KOLO_PUBLIC_BUCKETS_H
#include "kolo/comm.h"
#endif
