// Two threads read from one connection: the bytes of each call follow each other in the stream.
#include "probe.h"

enum { TOTAL = 64 << 20, LONGEST = 1 << 20, PERIOD = 251 };

static int fd;

static void *write_all(void *unused) {
    (void)unused;
    static unsigned char bytes[LONGEST];
    for (size_t done = 0; done < TOTAL;) {
        for (size_t at = 0; at < sizeof bytes; at++) bytes[at] = (done + at) % PERIOD;
        for (size_t at = 0; at < sizeof bytes;) {
            ssize_t more = write(fd, bytes + at, sizeof bytes - at);
            if (more <= 0) fail("write");
            at += more;
        }
        done += sizeof bytes;
    }
    shutdown(fd, SHUT_WR);
    return NULL;
}

// Returns the number of bytes that this thread has read.
static void *read_all(void *unused) {
    (void)unused;
    unsigned char *bytes = malloc(LONGEST);
    size_t total = 0;
    for (ssize_t length; (length = read(fd, bytes, LONGEST)) != 0; total += length) {
        if (length < 0) fail("read");
        for (ssize_t at = 1; at < length; at++)
            if (bytes[at] != (bytes[at - 1] + 1) % PERIOD) fail("bytes are missing in a read");
    }
    free(bytes);
    return (void *)total;
}

static void *echo_at_once(void *argument) {
    int fd = (int)(intptr_t)argument;
    char *bytes = malloc(LONGEST);
    ssize_t length;
    while ((length = read(fd, bytes, LONGEST)) > 0)
        for (ssize_t done = 0, more; done < length; done += more)
            if ((more = write(fd, bytes + done, length - done)) <= 0) return NULL;
    close(fd);
    return NULL;
}

int main(void) {
    start_server_of(echo_at_once);
    fd = connected_by_ring();
    pthread_t threads[3];
    void *(*const starts[])(void *) = {write_all, read_all, read_all};
    for (int at = 0; at < 3; at++)
        if (pthread_create(&threads[at], NULL, starts[at], NULL)) fail("thread");
    size_t total = 0;
    for (int at = 0; at < 3; at++) {
        void *result = NULL;
        pthread_join(threads[at], &result);
        total += (size_t)result;
    }
    printf("%zu bytes\n", total);
    stop_server();
    return 0;
}
