// What a server and a client may do with connections that the kernel does not know.
//
//   rules echo PORT WAY         serves for ever; says f or p (with the library or not), and echoes
//   rules client PORT WAY       prints a line for each connection, and ends after a line of input
//
// WAY of a server: plain, reuseport, fastopen, forked, inherited
// WAY of a client: plain, bound, limits, descriptors

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
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

static void echo(int fd) {
    char buffer[4096];
    ssize_t length;
    char kind = getenv("LD_PRELOAD") ? 'f' : 'p';
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

static void serve(int port, const char *way) {
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    set(listener, SOL_SOCKET, SO_REUSEADDR, 1);
    if (strcmp(way, "reuseport") == 0) {
        set(listener, SOL_SOCKET, SO_REUSEPORT, 1);
    }
    if (strcmp(way, "fastopen") == 0) {
        set(listener, IPPROTO_TCP, TCP_FASTOPEN, 5);
    }
    struct sockaddr_in own = at(port);
    int bound;
    // A server that was killed may have the port for a moment.
    for (int try = 0; (bound = bind(listener, (void *)&own, sizeof own)) != 0 && try < 2000; try++) {
        usleep(1000);
    }
    CHECK(bound == 0 && listen(listener, 64) == 0);
    socklen_t length = sizeof own;
    CHECK(getsockname(listener, (void *)&own, &length) == 0);
    printf("%d\n", ntohs(own.sin_port));
    fflush(stdout);
    if (strcmp(way, "forked") == 0 && fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            pause();
        }
    }
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        CHECK(fd >= 0);
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, echo_and_close, (void *)(intptr_t)fd) == 0);
        if (strcmp(way, "inherited") == 0) {
            pthread_join(thread, NULL);
            char number[16];
            snprintf(number, sizeof number, "%d", listener);
            execl("/proc/self/exe", "rules", "listening", number, "plain", NULL);
            CHECK(0);
        }
        pthread_detach(thread);
    }
}

static int connected(int port, const char *way) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (strcmp(way, "bound") == 0) {
        struct sockaddr_in own = at(0);
        CHECK(bind(fd, (void *)&own, sizeof own) == 0);
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
        char kind = '?', sent[300], received[300];
        memset(sent, port + fd, sizeof sent);
        ssize_t length = read(fd, &kind, 1);
        if (length == 1 && write(fd, sent, sizeof sent) == sizeof sent) {
            size_t done = 0;
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
        close(fd);
    }
}

// A connection that the kernel does not know.
static int direct(int port) {
    for (int try = 0; try < 100; try++) {
        int fd = connected(port, "plain");
        CHECK(fd >= 0);
        char kind;
        CHECK(read(fd, &kind, 1) == 1);
        if (!kernel_knows(fd)) {
            return fd;
        }
        close(fd);
    }
    CHECK(!"no connection is direct");
    return -1;
}

static void pass(int fd) {
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    char byte = 1, control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control};
    message.msg_controllen = sizeof control;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    CHECK(sendmsg(ends[0], &message, 0) < 0 && errno == EOPNOTSUPP);
}

// What bypasses the library finds a socket that is not connected; what has no way back fails.
static void limits(int port) {
    int one = direct(port), other = direct(port);
    char buffer[16];
    CHECK(raw(SYS_recvfrom, one, (long)buffer, sizeof buffer, MSG_DONTWAIT) == -ENOTCONN);
    CHECK(raw(SYS_sendto, one, (long)buffer, sizeof buffer, MSG_NOSIGNAL) == -EPIPE);
    pass(one);
    int ends[2];
    CHECK(pipe(ends) == 0 && write(ends[1], "abc", 3) == 3);
    CHECK(splice(ends[0], NULL, one, NULL, 3, 0) < 0 && errno == EOPNOTSUPP);
    int value = 1;
    CHECK(setsockopt(one, SOL_SOCKET, SO_ZEROCOPY, &value, sizeof value) < 0);
    CHECK(errno == EOPNOTSUPP);
    CHECK(send(one, "x", 1, MSG_OOB) < 0 && errno == EOPNOTSUPP);
    CHECK(fcntl(one, F_SETFL, O_NONBLOCK) == 0);
    CHECK(read(one, buffer, 1) < 0 && errno == EAGAIN);
    CHECK(!(fcntl(other, F_GETFL) & O_NONBLOCK));
    // All goes on.
    CHECK(write(one, "one", 3) == 3 && write(other, "other", 5) == 5);
    CHECK(read(other, buffer, 16) == 5 && memcmp(buffer, "other", 5) == 0);
    CHECK(fcntl(one, F_SETFL, 0) == 0);
    CHECK(read(one, buffer, 16) == 3 && memcmp(buffer, "one", 3) == 0);
    puts("done");
}

// A process that may have few descriptors gets all of their numbers.
static void descriptors(int port) {
    struct rlimit limit = {200, 200};
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    close(direct(port));
    int all[200], count = 0, fd;
    while ((fd = connected(port, "plain")) >= 0) {
        CHECK(count < 200);
        all[count++] = fd;
    }
    CHECK(errno == EBADF || errno == EMFILE);
    CHECK(count > 100);
    while (count > 0) {
        close(all[--count]);
    }
    close(direct(port));
    puts("done");
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    int port = atoi(argv[2]);
    if (strcmp(argv[1], "echo") == 0) {
        serve(port, argv[3]);
    } else if (strcmp(argv[1], "listening") == 0) {
        for (;;) {
            int fd = accept(port, NULL, NULL);
            CHECK(fd >= 0);
            echo(fd);
            close(fd);
        }
    } else if (strcmp(argv[3], "limits") == 0) {
        limits(port);
    } else if (strcmp(argv[3], "descriptors") == 0) {
        descriptors(port);
    } else {
        use(port, argv[3]);
    }
    return 0;
}
