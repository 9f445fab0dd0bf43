// Servers and clients of connections that the kernel does not know: what their programs share.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, strerror(errno)); \
            exit(1); \
        } \
    } while (0)

// System calls by machine code, which no library sees.
static long raw(long number, long a, long b, long c, long d) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = 0;
    register long r9 __asm__("r9") = 0;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

static int kernel_knows(int fd) {
    char address[128];
    int length = sizeof address;
    return raw(SYS_getpeername, fd, (long)address, (long)&length, 0) == 0;
}

static struct sockaddr_in at(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static void set(int fd, int level, int name, int value) {
    CHECK(setsockopt(fd, level, name, &value, sizeof value) == 0);
}

// The first byte of each connection of a server.
static char kind;

static void echo(int fd) {
    char buffer[4096];
    ssize_t length;
    if (write(fd, &kind, 1) != 1) {
        return;
    }
    while ((length = read(fd, buffer, sizeof buffer)) > 0) {
        if (send(fd, buffer, length, MSG_NOSIGNAL) != length) {
            return;
        }
    }
}

static void *echo_and_close(void *argument) {
    echo((int)(intptr_t)argument);
    close((int)(intptr_t)argument);
    return NULL;
}

// Sends a descriptor to another process; less than 0 if that fails.
static ssize_t pass(int to, int fd) {
    char byte = 1, control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control};
    message.msg_controllen = sizeof control;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    return sendmsg(to, &message, 0);
}

static int passed(int from) {
    int fd = -1;
    char byte, control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control};
    message.msg_controllen = sizeof control;
    CHECK(recvmsg(from, &message, 0) == 1 && CMSG_FIRSTHDR(&message));
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

static int connected(int port, const char *way) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (strcmp(way, "bound") == 0) {
        struct sockaddr_in own = at(0);
        CHECK(bind(fd, (void *)&own, sizeof own) == 0);
    }
    if (strcmp(way, "timeout") == 0) {
        struct timeval time = {1, 0};
        CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0);
    }
    struct sockaddr_in to = at(port);
    if (connect(fd, (void *)&to, sizeof to) != 0) {
        int number = errno;
        close(fd);
        errno = number;
        return -1;
    }
    return fd;
}

static int has_input(void) {
    struct pollfd input = {.fd = 0, .events = POLLIN};
    return poll(&input, 1, 0) > 0;
}

// Connections, one after the other, until there is input.
static void use(int port, const char *way) {
    while (!has_input()) {
        int fd = connected(port, way);
        if (fd < 0) {
            CHECK(errno == ECONNREFUSED);
            usleep(200);
            continue;
        }
        int direct = !kernel_knows(fd);
        char sent[300], received[300];
        size_t done = 0;
        kind = '?';
        memset(sent, port + fd, sizeof sent);
        ssize_t length = read(fd, &kind, 1);
        if (length == 1 && write(fd, sent, sizeof sent) == sizeof sent) {
            while (done < sizeof sent &&
                   (length = read(fd, received + done, sizeof sent - done)) > 0) {
                done += length;
            }
            CHECK(memcmp(sent, received, done) == 0);
            if (done == sizeof sent) {
                printf("%s %c\n", direct ? "direct" : "kernel", kind);
                fflush(stdout);
            }
        }
        // Nothing else ends it.
        CHECK(done == sizeof sent || strcmp(way, "signals") != 0);
        close(fd);
    }
}

// A connection that the kernel does not know.
static int direct(int port) {
    // The monitor is not asked each time.
    for (int try = 0; try < 20000; try++, usleep(1000)) {
        int fd = connected(port, "plain");
        CHECK(fd >= 0);
        CHECK(read(fd, &kind, 1) == 1);
        if (!kernel_knows(fd)) {
            return fd;
        }
        close(fd);
    }
    CHECK(!"no connection is direct");
    return -1;
}
