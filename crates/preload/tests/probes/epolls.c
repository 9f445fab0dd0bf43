// Duplicates of an epoll: connections are registered by one descriptor, and waited for by another.
// With an argument, the epoll is used by two processes.
#include "probe.h"

enum { TIMEOUT = 10000 };

static void add(int epoll, int fd, uint32_t events) {
    struct epoll_event event = {events, {.u64 = 7}};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)) fail("epoll_ctl");
}

static void say(const char *what, int epoll) {
    struct epoll_event event = {0};
    int count = epoll_wait(epoll, &event, 1, TIMEOUT);
    printf("%s: %d, %x, %d\n", what, count, event.events, (int)event.data.u64);
}

static int has_out;

// A message is answered while `waits` is waited on.
static void answer(const char *what, int fd, int waits) {
    char bytes[16];
    for (int round = 0; round < 3; round++) {
        if (write(fd, "fresh water", 11) != 11) fail("write");
        // With EPOLLOUT, what is reported depends on whether the answer has come.
        if (has_out && recv(fd, bytes, 1, MSG_PEEK) != 1) fail("recv");
        say(what, waits);
        printf("received %zd\n", read(fd, bytes, sizeof bytes));
    }
}

static int duplicate(int epoll, int way) {
    switch (way) {
    case 0: return dup(epoll);
    case 1: return dup2(epoll, 100);
    case 2: return dup3(epoll, 101, O_CLOEXEC);
    default: return fcntl(epoll, F_DUPFD_CLOEXEC, 102);
    }
}

static void duplicates(uint32_t events) {
    for (int way = 0; way < 4; way++) {
        int fd = connected_by_ring(), epoll = epoll_create1(EPOLL_CLOEXEC);
        int other = duplicate(epoll, way);
        printf("way %d, events %x\n", way, events);
        has_out = (events & EPOLLOUT) != 0;
        add(other, fd, events);
        answer("by the original", fd, epoll);
        answer("by the duplicate", fd, other);
        struct epoll_event event = {EPOLLIN | EPOLLOUT, {.u64 = 8}};
        if (epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event)) fail("change");
        say("room", other);
        // A connection that is new comes to the ring while it is registered.
        int late = connected();
        add(other, late, EPOLLIN);
        event.events = EPOLLIN;
        if (epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event)) fail("change");
        printf("exchanges %d\n", exchange(late, EXCHANGES));
        answer("late", late, epoll);
        close(epoll);
        answer("without the original", fd, other);
        if (epoll_ctl(other, EPOLL_CTL_DEL, fd, NULL)) fail("delete");
        close(other);
        close(late);
        close(fd);
    }
}

static void send_descriptor(int socket, int fd) {
    char control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec piece = {"x", 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control,
                             .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    if (sendmsg(socket, &message, 0) != 1) fail("sendmsg");
}

static int receive_descriptor(int socket) {
    char byte, control[CMSG_SPACE(sizeof(int))];
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control,
                             .msg_controllen = sizeof control};
    int fd;
    if (recvmsg(socket, &message, 0) != 1 || !CMSG_FIRSTHDR(&message)) fail("recvmsg");
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

// The child waits for what the parent has registered.
static void in_two_processes(int is_passed) {
    int fd = connected_by_ring(), pair[2], turn[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || pipe(turn)) fail("pair");
    int epoll = is_passed ? -1 : epoll_create1(0);
    pid_t child = fork();
    if (child == 0) {
        if (is_passed) epoll = receive_descriptor(pair[1]);
        for (int round = 0; round < 20; round++) {
            say("child", epoll);
            fflush(stdout);
            if (write(turn[1], "", 1) != 1) fail("turn");
        }
        _exit(0);
    }
    if (is_passed) epoll = epoll_create1(0);
    add(epoll, fd, EPOLLIN | EPOLLET);
    if (is_passed) send_descriptor(pair[0], epoll);
    for (int round = 0; round < 20; round++) {
        char byte, bytes[16];
        if (write(fd, "fresh water", 11) != 11 || read(turn[0], &byte, 1) != 1) fail("turn");
        printf("received %zd\n", read(fd, bytes, sizeof bytes));
        fflush(stdout);
    }
    waitpid(child, NULL, 0);
    answer("parent", fd, epoll);
}

// The parent sleeps while the child begins to use the epoll.
static void after_fork(void) {
    int fd = connected_by_ring(), epoll = epoll_create1(0);
    add(epoll, fd, EPOLLIN);
    answer("before", fd, epoll);
    pid_t child = fork();
    if (child == 0) {
        int own = connected();
        printf("exchanges %d\n", exchange(own, EXCHANGES));
        add(epoll, own, EPOLLIN);
        if (write(own, "water", 5) != 5) fail("write");
        say("child", epoll);
        fflush(stdout);
        close(own);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    answer("after", fd, epoll);
    int late = connected();
    add(epoll, late, EPOLLIN);
    printf("exchanges %d\n", exchange(late, EXCHANGES));
    answer("late", late, epoll);
}

int main(int count, char **arguments) {
    start_server();
    setlinebuf(stdout);
    if (count < 2) {
        duplicates(EPOLLIN);
        duplicates(EPOLLIN | EPOLLET);
        duplicates(EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    } else if (!strcmp(arguments[1], "passed")) {
        in_two_processes(1);
    } else if (!strcmp(arguments[1], "inherited")) {
        in_two_processes(0);
    } else {
        after_fork();
    }
    stop_server();
    return 0;
}
