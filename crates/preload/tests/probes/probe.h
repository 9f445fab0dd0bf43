// What the probes share: a server that echoes, in a process of its own, and connections to it.
//
// A probe prints what a program can observe. The test runs it without and with the library, and
// compares. What it prints to standard error says only where it failed.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { EXCHANGES = 50 };

static struct sockaddr_in address;
static pid_t server;

__attribute__((unused)) static void fail(const char *step) {
    int number = errno;
    dprintf(2, "%s: %s\n", step, strerror(number));
    if (server > 0) kill(server, SIGKILL);
    _exit(2);
}

__attribute__((unused)) static void *echo(void *argument) {
    int fd = (int)(intptr_t)argument;
    char bytes[4096];
    ssize_t length;
    while ((length = read(fd, bytes, sizeof bytes)) > 0)
        for (ssize_t done = 0, more; done < length; done += more)
            if ((more = write(fd, bytes + done, length - done)) <= 0) return NULL;
    close(fd);
    return NULL;
}

__attribute__((unused)) static int listening(void) {
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t length = sizeof address;
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = 0;
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 64) ||
        getsockname(listener, (struct sockaddr *)&address, &length))
        fail("listen");
    return listener;
}

// Starts a process that calls `serve` in a thread for each connection.
__attribute__((unused)) static void start_server_of(void *(*serve)(void *)) {
    signal(SIGPIPE, SIG_IGN);
    alarm(60);
    int listener = listening();
    server = fork();
    if (server != 0) {
        close(listener);
        return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        pthread_t thread;
        if (fd < 0 || pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd)) fail("serve");
        pthread_detach(thread);
    }
}

__attribute__((unused)) static void start_server(void) { start_server_of(echo); }

__attribute__((unused)) static void stop_server(void) {
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
}

__attribute__((unused)) static int connected(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
    return fd;
}

// Returns 1 if each message comes back as it was sent.
__attribute__((unused)) static int exchange(int fd, int count) {
    for (int round = 0; round < count; round++) {
        unsigned char out[1500], in[1500];
        for (size_t at = 0; at < sizeof out; at++) out[at] = at * 7 + round;
        if (write(fd, out, sizeof out) != sizeof out) return 0;
        for (size_t got = 0; got < sizeof in;) {
            ssize_t length = read(fd, in + got, sizeof in - got);
            if (length <= 0) return 0;
            got += length;
        }
        if (memcmp(out, in, sizeof in)) return 0;
    }
    return 1;
}

enum { MAX_RINGS = 256 };

// The inodes of the segments that are mapped; returns their number.
__attribute__((unused)) static int mapped_rings(unsigned long inodes[MAX_RINGS]) {
    static char text[1 << 20];
    size_t length = 0;
    int count = 0, maps = open("/proc/self/maps", O_RDONLY);
    for (ssize_t more; (more = read(maps, text + length, sizeof text - 1 - length)) > 0;)
        length += more;
    close(maps);
    text[length] = 0;
    for (char *line = strtok(text, "\n"); line && count < MAX_RINGS; line = strtok(NULL, "\n"))
        if (strstr(line, "levada-ring") &&
            sscanf(line, "%*s %*s %*s %*s %lu", &inodes[count]) == 1)
            count++;
    return count;
}

// Whether a segment is mapped that is none of these.
__attribute__((unused)) static int has_new_ring(const unsigned long *known, int known_count) {
    unsigned long inodes[MAX_RINGS];
    for (int at = mapped_rings(inodes) - 1; at >= 0; at--) {
        int is_known = 0;
        for (int other = 0; other < known_count; other++) is_known |= known[other] == inodes[at];
        if (!is_known) return 1;
    }
    return 0;
}

// A connection that is on rings, if the library is loaded.
__attribute__((unused)) static int connected_by_ring(void) {
    unsigned long before[MAX_RINGS];
    int count = mapped_rings(before), fd = connected();
    for (time_t start = time(NULL); time(NULL) < start + 40;) {
        if (!exchange(fd, EXCHANGES)) fail("exchange");
        if (!getenv("LD_PRELOAD") || has_new_ring(before, count)) return fd;
    }
    fail("there are no rings");
    return -1;
}
