/* Memory in whole pages, which goes back to the system when it is freed, so that growing leaves no holes behind.
 *
 * Places lie in slabs of 2 MB, for which huge pages would be best: with a million keys, finding small pages costs a
 * tenth of a decision. But a huge page that is requested when a slab is made has to be cleared, and perhaps found,
 * when its first place is touched. That takes 0.1 ms at best, and up to 6 ms on a virtual machine whose host has to
 * find the memory; every 43,690th new key would wait for it. So a slab grows by small pages, and the system is advised
 * to make a huge page of it when it is full: its own thread does so later. With that, the longest call while two
 * million keys come takes 0.3 ms, where it took 6 to 7.5 ms. Until the system has done it, a decision about one of a
 * million keys costs 0.5 of the increment in a dictionary instead of 0.45.
 */
#include "native.h"

#include <sys/mman.h>

#define SMALL 4096

void *
pages_new(size_t size)
{
    if (size < SMALL) {
        void *memory = PyMem_Calloc(1, size);
        if (memory == NULL) {
            PyErr_NoMemory();
        }
        return memory;
    }
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        PyErr_NoMemory();
        return NULL;
    }
    return memory;
}

void
pages_free(void *memory, size_t size)
{
    if (memory == NULL) {
        return;
    }
    if (size < SMALL) {
        PyMem_Free(memory);
    } else {
        munmap(memory, size);
    }
}

/* A slab, which begins where a huge page may begin. Nothing of it is in memory before it is touched. */
void *
slab_new(void)
{
    char *memory = mmap(NULL, 2 * SLAB_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        PyErr_NoMemory();
        return NULL;
    }
    size_t before = (SLAB_BYTES - (uintptr_t)memory % SLAB_BYTES) % SLAB_BYTES;
    if (before > 0) {
        munmap(memory, before);
    }
    munmap(memory + before + SLAB_BYTES, SLAB_BYTES - before);
    return memory + before;
}

/* A full slab should be one huge page: among a million keys, finding the page costs a tenth of a decision. The system
 * makes it one later. If it did so at once, the decision that touches the slab first would wait for that, up to six
 * milliseconds on a virtual machine. This is only advice, so errors are ignored. */
void
slab_is_full(void *slab)
{
#ifdef MADV_HUGEPAGE
    madvise(slab, SLAB_BYTES, MADV_HUGEPAGE);
#endif
}

void
slab_free(void *slab)
{
    munmap(slab, SLAB_BYTES);
}
