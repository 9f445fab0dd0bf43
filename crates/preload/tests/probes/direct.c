// A server and a client that make one connection after the other. The client prints how many of
// them the kernel does not know.
//
//   direct server WAY COUNT          prints its port, and serves COUNT connections
//   direct client WAY COUNT PORT
//
// WAY: blocking, nonblocking (poll), select, level or edge (epoll)

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, strerror(errno)); \
            exit(1); \
        } \
    } while (0)

// getpeername(2) by machine code, which no library sees.
static int kernel_knows(int fd) {
    char address[128];
    int length = sizeof address;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"((long)SYS_getpeername), "D"((long)fd), "S"(address), "d"(&length)
                     : "rcx", "r11", "memory");
    return result == 0;
}

static const char *way;
static int epoll = -1;

static int is(const char *name) { return strcmp(way, name) == 0; }

// Waits until the descriptor has the event.
static void ready(int fd, int is_write) {
    if (is("nonblocking")) {
        struct pollfd set = {.fd = fd, .events = is_write ? POLLOUT : POLLIN};
        CHECK(poll(&set, 1, 20000) == 1);
        CHECK(set.revents & set.events);
    } else if (is("select")) {
        fd_set set;
        FD_ZERO(&set);
        FD_SET(fd, &set);
        struct timeval time = {20, 0};
        CHECK(select(fd + 1, is_write ? NULL : &set, is_write ? &set : NULL, NULL, &time) == 1);
    } else if (is("level") || is("edge")) {
        struct epoll_event event = {.data.fd = fd};
        event.events = (is_write ? EPOLLOUT : EPOLLIN) | (is("edge") ? EPOLLET : 0);
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
            CHECK(errno == EEXIST);
            CHECK(epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event) == 0);
        }
        struct epoll_event found;
        int count;
        do {
            count = epoll_wait(epoll, &found, 1, 20000);
            CHECK(count == 1);
        } while (found.data.fd != fd);
    }
}

static void set_flags(int fd) {
    if (!is("blocking")) {
        CHECK(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0);
    }
    CHECK(!(fcntl(fd, F_GETFL) & O_NONBLOCK) == is("blocking"));
}

static ssize_t receive(int fd, char *buffer, size_t room) {
    for (;;) {
        ssize_t length = read(fd, buffer, room);
        if (length >= 0 || errno != EAGAIN) {
            return length;
        }
        CHECK(!is("blocking"));
        ready(fd, 0);
    }
}

static void transmit(int fd, const char *bytes, size_t length) {
    while (length > 0) {
        ssize_t sent = write(fd, bytes, length);
        if (sent < 0) {
            CHECK(errno == EAGAIN && !is("blocking"));
            ready(fd, 1);
            continue;
        }
        bytes += sent;
        length -= sent;
    }
}

static void serve(int count) {
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    CHECK(bind(listener, (void *)&own, sizeof own) == 0 && listen(listener, 16) == 0);
    socklen_t length = sizeof own;
    CHECK(getsockname(listener, (void *)&own, &length) == 0);
    printf("%d\n", ntohs(own.sin_port));
    fflush(stdout);
    if (!is("blocking")) {
        CHECK(fcntl(listener, F_SETFL, O_NONBLOCK) == 0);
    }
    static char buffer[1 << 20];
    for (int at = 0; at < count; at++) {
        struct sockaddr_in peer, named;
        length = sizeof peer;
        int fd;
        while ((fd = accept(listener, (void *)&peer, &length)) < 0) {
            CHECK(errno == EAGAIN && !is("blocking"));
            ready(listener, 0);
            length = sizeof peer;
        }
        CHECK(length == sizeof peer && peer.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
        length = sizeof named;
        CHECK(getpeername(fd, (void *)&named, &length) == 0);
        CHECK(memcmp(&peer, &named, sizeof peer) == 0);
        CHECK(getsockname(fd, (void *)&named, &length) == 0 && named.sin_port == own.sin_port);
        CHECK(fcntl(fd, F_GETFL) == O_RDWR);
        set_flags(fd);
        ssize_t received;
        while ((received = receive(fd, buffer, sizeof buffer)) > 0) {
            transmit(fd, buffer, received);
        }
        CHECK(received == 0);
        CHECK(close(fd) == 0);
    }
}

static int connected(int port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    to.sin_port = htons(port);
    set_flags(fd);
    if (connect(fd, (void *)&to, sizeof to) != 0) {
        CHECK(errno == EINPROGRESS && !is("blocking"));
        ready(fd, 1);
    }
    int error = 1;
    socklen_t length = sizeof error;
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0);
    struct sockaddr_in named;
    length = sizeof named;
    CHECK(getpeername(fd, (void *)&named, &length) == 0 && length == sizeof named);
    CHECK(memcmp(&named, &to, sizeof to) == 0);
    CHECK(getsockname(fd, (void *)&named, &length) == 0 && named.sin_port != 0);
    CHECK(named.sin_addr.s_addr == to.sin_addr.s_addr);
    struct tcp_info info;
    length = sizeof info;
    CHECK(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 && info.tcpi_state == 1);
    return fd;
}

static void use(int count, int port) {
    int direct = 0;
    static char sent[300000], received[300000];
    for (int at = 0; at < count; at++) {
        int fd = connected(port);
        direct += !kernel_knows(fd);
        size_t length = at % 5 == 4 ? sizeof sent : 100 + at;
        for (size_t byte = 0; byte < length; byte++) {
            sent[byte] = (char)(byte * 7 + at);
        }
        for (int round = 0; round < 3; round++) {
            size_t done = 0, gone = 0;
            while (done < length) {
                // In pieces, so that neither end waits for the other one.
                size_t piece = length - gone < 30000 ? length - gone : 30000;
                transmit(fd, sent + gone, piece);
                gone += piece;
                while (done < gone) {
                    ssize_t some = receive(fd, received + done, gone - done);
                    CHECK(some > 0);
                    done += some;
                }
            }
            CHECK(memcmp(sent, received, length) == 0);
        }
        CHECK(shutdown(fd, SHUT_WR) == 0);
        CHECK(receive(fd, received, 1) == 0);
        CHECK(close(fd) == 0);
    }
    printf("%d direct\n", direct);
}

int main(int argc, char **argv) {
    CHECK(argc >= 4);
    way = argv[2];
    epoll = epoll_create1(0);
    if (strcmp(argv[1], "server") == 0) {
        serve(atoi(argv[3]));
    } else {
        use(atoi(argv[3]), atoi(argv[4]));
    }
    return 0;
}
