// Echo server and client with threads. Calls block; with -DPOLLING, sockets do not block, and a
// thread that would block sleeps in poll: two threads of the client on one connection.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PART = 65536 };
static struct sockaddr_in address;
static unsigned char *pattern;
static size_t pattern_length;
static unsigned long long total;

struct exchange {
    pthread_t reader, writer;
    int fd;
    unsigned long long sent, received;
    long long wrong;
};

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void prepare(int fd) {
#ifdef POLLING
    if (fcntl(fd, F_SETFL, O_NONBLOCK) != 0) fail("fcntl");
#else
    (void)fd;
#endif
}

// Returns true if the call has to be made again.
static int would_block(int fd, ssize_t result, short events) {
    struct pollfd waits = {.fd = fd, .events = events};
    return result < 0 && errno == EAGAIN && poll(&waits, 1, -1) == 1;
}

static ssize_t receive(int fd, unsigned char *bytes, size_t length) {
    ssize_t received;
    do received = recv(fd, bytes, length, 0);
    while (would_block(fd, received, POLLIN));
    return received;
}

static int send_all(int fd, const unsigned char *bytes, size_t length) {
    while (length > 0) {
        ssize_t sent = send(fd, bytes, length, MSG_NOSIGNAL);
        if (would_block(fd, sent, POLLOUT)) continue;
        if (sent < 0) return -1;
        bytes += sent;
        length -= sent;
    }
    return 0;
}

static void *echo(void *argument) {
    int fd = (int)(long)argument;
    static _Thread_local unsigned char buffer[PART];
    ssize_t length;
    prepare(fd);
    while ((length = receive(fd, buffer, PART)) > 0)
        if (send_all(fd, buffer, length) != 0) break;
    close(fd);
    return NULL;
}

static void serve(void) {
    int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0) fail("bind");
    if (listen(listener, 64) != 0) fail("listen");
    for (;;) {
        pthread_t thread;
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) fail("accept");
        if (pthread_create(&thread, NULL, echo, (void *)(long)fd) != 0) fail("thread");
        pthread_detach(thread);
    }
}

static size_t chunk(unsigned long long at, size_t limit, const unsigned char **bytes) {
    size_t start = at % pattern_length, length = pattern_length - start;
    *bytes = pattern + start;
    if (length > limit) length = limit;
    return length > total - at ? total - at : length;
}

// Compares received bytes with those that were sent.
static void check(struct exchange *it, const unsigned char *bytes, size_t length) {
    while (length > 0) {
        const unsigned char *wanted;
        size_t part = chunk(it->received, length, &wanted);
        if (part == 0 || memcmp(bytes, wanted, part) != 0) {
            if (it->wrong < 0) it->wrong = it->received;
            part = length;
        }
        it->received += part;
        bytes += part;
        length -= part;
    }
}

static void *read_to_end(void *argument) {
    struct exchange *it = argument;
    unsigned char *buffer = malloc(PART);
    ssize_t length;
    while ((length = receive(it->fd, buffer, PART)) > 0) check(it, buffer, length);
    if (length < 0) fail("recv");
    free(buffer);
    return NULL;
}

static void *write_stream(void *argument) {
    struct exchange *it = argument;
    unsigned char answer[1024];
    for (int round = 0; round < 20; round++) {
        const unsigned char *bytes;
        size_t length = chunk(it->sent, round * 37 + 1, &bytes);
        if (send_all(it->fd, bytes, length) != 0) fail("send");
        for (size_t at = 0; at < length;) {
            ssize_t part = receive(it->fd, answer + at, length - at);
            if (part <= 0) fail("recv");
            at += part;
        }
        check(it, answer, length);
        it->sent += length;
    }
    if (pthread_create(&it->reader, NULL, read_to_end, it) != 0) fail("thread");
    while (it->sent < total) {
        const unsigned char *bytes;
        size_t length = chunk(it->sent, it->sent * 7919 % PART + 1, &bytes);
        if (send_all(it->fd, bytes, length) != 0) fail("send");
        it->sent += length;
    }
    if (shutdown(it->fd, SHUT_WR) != 0) fail("shutdown");
    pthread_join(it->reader, NULL);
    return NULL;
}

int main(int count, char **arguments) {
    signal(SIGPIPE, SIG_IGN);
    if (count < 4) return 2;
    address.sin_family = AF_INET;
    address.sin_port = htons(atoi(arguments[3]));
    inet_pton(AF_INET, arguments[2], &address.sin_addr);
    if (strcmp(arguments[1], "server") == 0) serve();
    FILE *file = fopen(arguments[4], "rb");
    if (file == NULL) fail(arguments[4]);
    pattern = malloc(1 << 24);
    pattern_length = fread(pattern, 1, 1 << 24, file);
    fclose(file);
    total = strtoull(arguments[5], NULL, 10);
    int connections = atoi(arguments[6]);
    struct exchange *all = calloc(connections, sizeof *all);
    for (int at = 0; at < connections; at++) {
        all[at].wrong = -1;
        all[at].fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(all[at].fd, (struct sockaddr *)&address, sizeof address) != 0) fail("connect");
        prepare(all[at].fd);
        pthread_create(&all[at].writer, NULL, write_stream, &all[at]);
    }
    for (int at = 0; at < connections; at++) {
        struct exchange *it = &all[at];
        pthread_join(it->writer, NULL);
        close(it->fd);
        if (it->wrong >= 0) printf("%d %llu wrong at %lld\n", at, it->received, it->wrong);
        else printf("%d %llu same\n", at, it->received);
    }
    free(all);
    free(pattern);
    return 0;
}
