/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of the simulator's libnvidia-ml.so.1 that is the same for every entry point: it carries
 * a call, with the memory its pointers lead to, to the process that serves the machine, and the
 * answer back. What comes before it and after it is generated: constants, the shapes of all
 * parameters, and one exported function for each name. call_format.py describes the bytes.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define MOST_IDLE 64 /* connections that wait for the next call; the rest are closed */

typedef uint64_t word;

/* How much memory stands behind a parameter. */
struct parameter {
    uint32_t shape;
    uint32_t size;            /* bytes, of one item where there are several */
    uint32_t by;              /* the parameter that counts the items */
    uint32_t at;              /* offset of the count within the memory */
    uint32_t head;            /* bytes before the first item */
    const uint32_t *versions; /* version and size, in turns, until 0 */
};

struct bytes {
    char *data;
    size_t size, room;
    int failed;
};

static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static int idle[MOST_IDLE];
static int idle_count;
static pid_t owner; /* the process that the connections and the nonce belong to */
static uint8_t nonce[NONCE_BYTES];
static char directory[PATH_MAX];

/* ---- connections: each thread that calls has one for the time of its call */

/* A forked child has its parent's descriptors, but is another process to NVML. */
static void own_pool(void) {
    if (owner == getpid())
        return;
    while (idle_count > 0)
        close(idle[--idle_count]);
    owner = getpid();
    if (getrandom(nonce, sizeof nonce, 0) != sizeof nonce)
        memcpy(nonce, &owner, sizeof owner);
}

static void forked(void) {
    pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    memcpy(&pool_lock, &fresh, sizeof fresh);
    own_pool();
}

__attribute__((constructor)) static void loaded(void) {
    Dl_info here;
    char real[PATH_MAX];
    if (dladdr(&pool_lock, &here) && here.dli_fname && realpath(here.dli_fname, real)) {
        *strrchr(real, '/') = '\0';
        memcpy(directory, real, sizeof real);
    }
    pthread_atfork(NULL, NULL, forked);
}

static int send_all(int to, const char *data, size_t size) {
    while (size > 0) {
        ssize_t sent = send(to, data, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return -1;
        data += sent;
        size -= (size_t)sent;
    }
    return 0;
}

static int receive_all(int from, void *into, size_t size) {
    char *at = into;
    while (size > 0) {
        ssize_t got = recv(from, at, size, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return -1;
        at += got;
        size -= (size_t)got;
    }
    return 0;
}

/* The socket lies next to this library. An address holds 107 bytes, a path may be longer. */
static int reach(int connection) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t size = strlen(directory);
    int folder = -1, result;
    if (size + 1 + sizeof SOCKET_NAME <= sizeof address.sun_path) {
        memcpy(address.sun_path, directory, size);
        address.sun_path[size] = '/';
        memcpy(address.sun_path + size + 1, SOCKET_NAME, sizeof SOCKET_NAME);
    } else {
        folder = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
        snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/" SOCKET_NAME,
                 folder);
    }
    do
        result = connect(connection, (struct sockaddr *)&address, sizeof address);
    while (result < 0 && errno == EINTR);
    if (folder >= 0)
        close(folder);
    return result;
}

/* A new connection, or minus the return code that says why there is none. */
static int connected(const uint8_t *who) {
    char hello[sizeof DIGEST - 1 + NONCE_BYTES];
    uint8_t accepted = 0;
    int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection < 0)
        return -ERROR_UNKNOWN;
    memcpy(hello, DIGEST, sizeof DIGEST - 1);
    memcpy(hello + sizeof DIGEST - 1, who, NONCE_BYTES);
    if (reach(connection) < 0 || send_all(connection, hello, sizeof hello) < 0 ||
        receive_all(connection, &accepted, 1) < 0) {
        close(connection);
        return -ERROR_DRIVER_NOT_LOADED;
    }
    if (!accepted) {
        close(connection);
        return -ERROR_LIB_RM_VERSION_MISMATCH;
    }
    return connection;
}

static int acquire(void) {
    uint8_t who[NONCE_BYTES];
    int connection = -1;
    pthread_mutex_lock(&pool_lock);
    own_pool();
    memcpy(who, nonce, sizeof who);
    if (idle_count > 0)
        connection = idle[--idle_count];
    pthread_mutex_unlock(&pool_lock);
    return connection >= 0 ? connection : connected(who);
}

static void release(int connection, int broken) {
    pthread_mutex_lock(&pool_lock);
    own_pool();
    if (broken) /* whoever served it is gone: what waits leads there too */
        while (idle_count > 0)
            close(idle[--idle_count]);
    else if (idle_count < MOST_IDLE) {
        idle[idle_count++] = connection;
        connection = -1;
    }
    pthread_mutex_unlock(&pool_lock);
    if (connection >= 0)
        close(connection);
}

/* ---- a call as bytes */

static void put(struct bytes *to, const void *data, size_t size) {
    if (to->failed)
        return;
    if (to->size + size > to->room) {
        size_t room = 2 * (to->size + size);
        char *grown = realloc(to->data, room);
        if (!grown) {
            to->failed = 1;
            return;
        }
        to->data = grown;
        to->room = room;
    }
    memcpy(to->data + to->size, data, size);
    to->size += size;
}

static void put_number(struct bytes *to, uint32_t number) { put(to, &number, sizeof number); }

static uint32_t number_at(const void *memory, size_t offset) {
    uint32_t number;
    memcpy(&number, (const char *)memory + offset, sizeof number);
    return number;
}

/* The bytes of the caller's memory behind a parameter that is not NULL. */
static uint64_t length(const struct parameter *parameter, const word *words, word value) {
    const void *memory = (const void *)(uintptr_t)value;
    const uint32_t *version;
    uint64_t count;
    switch (parameter->shape) {
    case TEXT:
        return strlen(memory);
    case FIXED:
        return parameter->size;
    case SIZED:
        return (uint64_t)(uint32_t)words[parameter->by] * parameter->size;
    case COUNTED:
        memory = (const void *)(uintptr_t)words[parameter->by];
        return memory ? (uint64_t)number_at(memory, 0) * parameter->size : 0;
    case VERSIONED:
        for (version = parameter->versions; *version; version += 2)
            if (*version == number_at(memory, 0))
                return version[1];
        return sizeof *version;
    case TAILED:
        count = number_at(memory, parameter->at);
        return parameter->head + (count <= parameter->by ? count * parameter->size : 0);
    default: /* GIVEN: only the answer says how much */
        return 0;
    }
}

static int put_call(struct bytes *call, uint32_t number, const struct parameter *parameters,
                    uint32_t count, const word *words) {
    put_number(call, 0); /* what follows in bytes, known below */
    put_number(call, number);
    put(call, words, count * sizeof *words);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t size;
        if (parameters[i].shape == VALUE)
            continue;
        if (!words[i]) {
            put_number(call, NOTHING);
            continue;
        }
        size = length(&parameters[i], words, words[i]);
        if (size > MOST_BYTES)
            return ERROR_INVALID_ARGUMENT;
        put_number(call, (uint32_t)size);
        put(call, (const void *)(uintptr_t)words[i], size);
    }
    if (call->failed)
        return ERROR_MEMORY;
    *(uint32_t *)call->data = (uint32_t)(call->size - sizeof(uint32_t));
    return 0;
}

/* Store an answer where the caller wants it; minus 1 where the bytes make no sense. */
static int take_answer(const char *data, size_t size, const struct parameter *parameters,
                       uint32_t count, const word *words, int *code, const char **text) {
    if (size < 4)
        return -1;
    memcpy(code, data, 4);
    for (size_t at = 4, i = 0; i <= count; i++) {
        uint32_t piece;
        if (i < count && parameters[i].shape == VALUE)
            continue;
        if (i == count && !text)
            return 0;
        if (size - at < 4)
            return -1;
        piece = number_at(data, at);
        at += 4;
        if (piece == NOTHING)
            continue;
        if (size - at < piece)
            return -1;
        if (i == count)
            *text = strndup(data + at, piece);
        else if (piece && parameters[i].shape != TEXT)
            memcpy((void *)(uintptr_t)words[i], data + at, piece);
        at += piece;
    }
    return 0;
}

/* A fault ends the caller, not whoever serves it. */
static void crash(char kind, const char *prints, size_t size) {
    while (size > 0) {
        ssize_t written = write(2, prints, size);
        if (written <= 0)
            break;
        prints += written;
        size -= (size_t)written;
    }
    if (kind == EXIT)
        _exit(CRASH_STATUS);
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

/* Wait for the answer, for as long as it takes. */
static int receive_answer(int connection, const struct parameter *parameters, uint32_t count,
                          const word *words, int *code, const char **text) {
    void (*before)(int) = SIG_ERR;
    for (;;) {
        uint32_t size;
        char kind, *data;
        int result = 0;
        if (receive_all(connection, &size, sizeof size) < 0 || size < 1 || size > MOST_ANSWER_BYTES)
            return -1;
        data = malloc(size);
        if (!data || receive_all(connection, data, size) < 0) {
            free(data);
            return -1;
        }
        kind = data[0];
        if (kind == ANSWER)
            result = take_answer(data + 1, size - 1, parameters, count, words, code, text);
        else if (kind == DEAF)
            before = signal(SIGTERM, SIG_IGN);
        else if (kind == HEARING && before != SIG_ERR)
            signal(SIGTERM, before);
        else if (kind == EXIT || kind == KILL)
            crash(kind, data + 1, size - 1);
        free(data);
        if (kind == ANSWER)
            return result;
    }
}

static int forward(uint32_t number, const struct parameter *parameters, uint32_t count,
                   const word *words, const char **text) {
    struct bytes call = {0};
    int code = put_call(&call, number, parameters, count, words);
    int connection = -1, broken = 0;
    if (!code)
        connection = acquire();
    if (!code && connection < 0) /* without a driver there is no session either */
        code = is_init(number) ? -connection : ERROR_UNKNOWN;
    if (connection >= 0) {
        broken = send_all(connection, call.data, call.size) < 0 ||
                 receive_answer(connection, parameters, count, words, &code, text) < 0;
        if (broken)
            code = ERROR_UNKNOWN;
        release(connection, broken);
    }
    free(call.data);
    return code;
}

/* The same text at the same address for ever: callers keep the pointer. */
static const char *kept(const char *text) {
    static const char *texts[MOST_TEXTS];
    static int count;
    const char *found = NULL;
    pthread_mutex_lock(&pool_lock);
    for (int i = 0; i < count && !found; i++)
        if (!strcmp(texts[i], text))
            found = texts[i];
    if (!found && count < MOST_TEXTS)
        found = texts[count++] = strdup(text);
    pthread_mutex_unlock(&pool_lock);
    return found;
}

/* A text that the machine gives; where nobody serves, the one that was known when this was made. */
static const char *forward_text(uint32_t number, const struct parameter *parameters,
                                uint32_t count, const word *words) {
    const char *text = NULL, *result;
    if (forward(number, parameters, count, words, &text) && !text)
        return known_text((int)words[0]);
    if (!text)
        return NULL;
    result = kept(text);
    free((void *)text);
    return result;
}
