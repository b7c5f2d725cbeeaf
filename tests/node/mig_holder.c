/* SPDX-License-Identifier: Apache-2.0
 *
 * Holds the MIG devices, or whole GPUs, that NVIDIA_VISIBLE_DEVICES names, as a program with a CUDA
 * context on each does, and looks five times a second whether it still has them. A line for each:
 *
 *     open MIG-...         it has a handle and a context
 *     valid MIG-... 7      the handle still leads to the same device, for the seventh time
 *     lost MIG-... 2       it does not: the driver's return code
 *
 * Ends with 3 when one is lost, with 2 where it cannot begin. With the argument "stubborn" it does
 * not end by SIGTERM where it is the first process of a container.
 */

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST 64

typedef void *device;

static int (*init)(void);
static int (*handle_of)(const char *, device *);
static int (*context_on)(device);
static int (*uuid_of)(device, char *, unsigned int);
static int (*instance_of)(device, unsigned int *);

static void *library;

static void *function(const char *name)
{
    void *found = dlsym(library, name);
    if (!found) {
        printf("missing %s\n", name);
        exit(2);
    }
    return found;
}

/* Id of a MIG device's GPU instance; 0 for a whole GPU, which has none. The driver's return code. */
static int instance(const char *name, device opened, unsigned int *id)
{
    *id = 0;
    return strncmp(name, "MIG-", 4) ? 0 : instance_of(opened, id);
}

/* The first process of a container ignores a signal that it has no handler for. */
static void end(int signal)
{
    (void)signal;
    _exit(0);
}

int main(int count_of_words, char **word)
{
    const char *asked = getenv("NVIDIA_VISIBLE_DEVICES");
    static char names[1 << 16];
    static char *name[MOST];
    static device opened[MOST];
    static unsigned int id[MOST];
    int count = 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count_of_words < 2 || strcmp(word[1], "stubborn"))
        signal(SIGTERM, end);
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library) {
        printf("missing %s\n", dlerror());
        return 2;
    }
    init = (int (*)(void))function("nvmlInit_v2");
    handle_of = (int (*)(const char *, device *))function("nvmlDeviceGetHandleByUUID");
    context_on = (int (*)(device))function("gpuscapeContextCreate");
    uuid_of = (int (*)(device, char *, unsigned int))function("nvmlDeviceGetUUID");
    instance_of = (int (*)(device, unsigned int *))function("nvmlDeviceGetGpuInstanceId");

    snprintf(names, sizeof names, "%s", asked ? asked : "");
    int code = init();
    if (code) {
        printf("no driver %d\n", code);
        return 2;
    }
    for (char *each = strtok(names, ","); each && count < MOST; each = strtok(NULL, ",")) {
        name[count] = each;
        code = handle_of(each, &opened[count]);
        if (!code)
            code = instance(each, opened[count], &id[count]);
        if (!code)
            code = context_on(opened[count]);
        if (code) {
            printf("cannot open %s %d\n", each, code);
            return 2;
        }
        printf("open %s\n", each);
        count++;
    }
    if (!count) {
        printf("nothing to hold\n");
        return 2;
    }
    for (unsigned long turn = 1;; turn++) {
        struct timespec pause = {0, 200000000};
        nanosleep(&pause, NULL);
        for (int at = 0; at < count; at++) {
            char now[96] = "";
            unsigned int there = 0;
            code = uuid_of(opened[at], now, sizeof now);
            if (!code)
                code = instance(name[at], opened[at], &there);
            if (code || strcmp(now, name[at]) || there != id[at]) {
                printf("lost %s %d\n", name[at], code);
                return 3;
            }
            printf("valid %s %lu\n", name[at], turn);
        }
    }
}
