// An echo server as the runtime of Erlang does it: `server HOST PORT`. One thread waits in epoll.
// Workers try to receive first, and add a connection to the epoll when that would block. After
// an event they modify the registration to no event, receive, and arm it again.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PART = 65536, WORKERS = 3, CONNECTIONS = 65536 };
static int epoll, queue[2];
static char is_registered[CONNECTIONS];

static void arm(int operation, int fd, unsigned events) {
    struct epoll_event event = {.events = events | EPOLLONESHOT, .data.fd = fd};
    if (epoll_ctl(epoll, operation, fd, &event) != 0) perror("epoll_ctl");
}

static void enqueue(int fd) {
    if (write(queue[1], &fd, sizeof fd) != sizeof fd) perror("write");
}

// Returns false if the peer has closed the connection.
static int send_all(int fd, const char *bytes, size_t length) {
    while (length > 0) {
        ssize_t sent = send(fd, bytes, length, MSG_NOSIGNAL);
        if (sent < 0) {
            struct pollfd waits = {.fd = fd, .events = POLLOUT};
            if (errno != EAGAIN || poll(&waits, 1, -1) != 1) return 0;
            continue;
        }
        bytes += sent;
        length -= sent;
    }
    return 1;
}

// Echoes until receiving would block. Returns false at the end of the connection.
static int echo(int fd) {
    static _Thread_local char buffer[PART];
    for (;;) {
        ssize_t length = recv(fd, buffer, PART, 0);
        if (length < 0 && errno == EAGAIN) return 1;
        if (length <= 0 || !send_all(fd, buffer, length)) return 0;
    }
}

static void *work(void *argument) {
    int fd;
    while (read(queue[0], &fd, sizeof fd) == sizeof fd) {
        int operation = is_registered[fd] ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
        if (is_registered[fd]) arm(EPOLL_CTL_MOD, fd, 0);
        if (!echo(fd)) {
            is_registered[fd] = 0;
            // Else, while epoll_wait of the other thread looks at the file, the kernel (6.18) only ends
            // the connection when that call returns, which may be never.
            if (operation == EPOLL_CTL_MOD) epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL);
            close(fd);
            continue;
        }
        is_registered[fd] = 1;
        arm(operation, fd, EPOLLIN);
    }
    return argument;
}

static void *wait_for_events(void *argument) {
    struct epoll_event events[64];
    for (;;) {
        int count = epoll_wait(epoll, events, 64, -1);
        for (int at = 0; at < count; at++) enqueue(events[at].data.fd);
    }
    return argument;
}

int main(int count, char **arguments) {
    if (count < 4) return 2;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(arguments[3]))};
    inet_pton(AF_INET, arguments[2], &address.sin_addr);
    int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0) return 1;
    if (listen(listener, 64) != 0 || pipe(queue) != 0) return 1;
    epoll = epoll_create1(0);
    pthread_t thread;
    pthread_create(&thread, NULL, wait_for_events, NULL);
    for (int at = 0; at < WORKERS; at++) pthread_create(&thread, NULL, work, NULL);
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
        if (fd >= 0 && fd < CONNECTIONS) enqueue(fd);
    }
}
