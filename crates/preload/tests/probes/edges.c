// Clients of `rules`, at the edges of what a connection without the kernel can do.
//
//   edges PORT WAY      prints done after its part
//   edges FD used       finds a direct connection, inherited by exec, without the library
//
// WAY: many, several, options, read, unread, nested, children, orphans, exec, attack,
//   limit, spares, namespace (with the server, which gets PORT there)

#include "rules.h"

// Holds more connections than the server may have descriptors.
static void many(int port) {
    int first = connected(port, "plain");
    CHECK(first >= 0 && close(first) == 0);
    for (int count = 0; count < 230; count++) {
        CHECK(connected(port, "plain") >= 0);
    }
    puts("done");
    fflush(stdout);
    CHECK(getchar() == EOF);
}

// Connections that stay open, each of which a thread of the server serves.
static void several(int port) {
    for (int count = 0; count < 4; count++) {
        int fd = connected(port, "plain");
        struct pollfd waits = {.fd = fd, .events = POLLIN};
        CHECK(fd >= 0 && poll(&waits, 1, 20000) == 1 && read(fd, &kind, 1) == 1);
    }
    puts("done");
}

// The server sets options of two accepted connections, and says o.
static void options(int port) {
    int one = direct(port), other = direct(port);
    char said[2];
    CHECK(read(one, &said[0], 1) == 1 && read(other, &said[1], 1) == 1);
    CHECK(said[0] == 'o' && said[1] == 'o');
    puts("done");
}

// The process that serves is killed after ready was printed. Prints what the next read finds.
static void killed(int port, int echoes) {
    int fd = direct(port);
    char byte;
    CHECK(write(fd, "x", 1) == 1);
    CHECK(!echoes || read(fd, &byte, 1) == 1);
    puts("ready");
    fflush(stdout);
    ssize_t length = read(fd, &byte, 1);
    puts(length == 0 ? "end" : errno == ECONNRESET ? "reset" : "other");
}

// An epoll that another one, or poll, watches.
static void nested(int port) {
    int fd = direct(port), inner = epoll_create1(0), outer = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epoll_ctl(inner, EPOLL_CTL_ADD, fd, &event) == 0);
    CHECK(epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event) == 0);
    for (int count = 0; count < 200; count++) {
        char byte = count, found;
        CHECK(write(fd, &byte, 1) == 1);
        do {
            struct pollfd waits = {.fd = inner, .events = POLLIN};
            int ready = count & 1 ? poll(&waits, 1, 20000) : epoll_wait(outer, &event, 1, 20000);
            CHECK(ready == 1);
        } while (epoll_wait(inner, &event, 1, 0) == 0);
        CHECK(read(fd, &found, 1) == 1 && found == byte);
    }
    // Nested before the connection is added.
    int other = direct(port);
    event.events = EPOLLIN | EPOLLOUT;
    CHECK(epoll_ctl(inner, EPOLL_CTL_ADD, other, &event) == 0);
    CHECK(epoll_wait(outer, &event, 1, 20000) == 1 && epoll_wait(inner, &event, 1, 0) == 1);
    puts("done");
}

// Connections that only a child has: more of them than a pool has segments, one after the other.
static void children(int port, int are_killed) {
    for (int count = 0; count < 160;) {
        int fd = connected(port, "plain"), status;
        CHECK(fd >= 0 && read(fd, &kind, 1) == 1);
        count += !kernel_knows(fd);
        pid_t child = fork();
        if (child == 0) {
            char byte;
            CHECK(write(fd, "x", 1) == 1 && read(fd, &byte, 1) == 1 && byte == 'x');
            CHECK(!are_killed || kill(getpid(), SIGKILL) == 0);
            CHECK(shutdown(fd, SHUT_WR) == 0 && read(fd, &byte, 1) == 0);
            exit(0);
        }
        CHECK(child > 0);
        close(fd);
        CHECK(waitpid(child, &status, 0) == child && status == (are_killed ? SIGKILL : 0));
    }
    puts("done");
}

// Another program, without the library, gets a direct connection.
static void become(int port) {
    char number[16];
    snprintf(number, sizeof number, "%d", direct(port));
    unsetenv("LD_PRELOAD");
    execl("/proc/self/exe", "edges", number, "used", NULL);
    CHECK(0);
}

static void used(int fd) {
    char byte;
    CHECK(read(fd, &byte, 1) < 0 && errno == ENOTCONN);
    CHECK(send(fd, "x", 1, MSG_NOSIGNAL) < 0 && errno == EPIPE);
    puts("done");
}

// Writes anything into the pages that this process shares with its peers, until there is input.
static void attack(int port) {
    int fd = direct(port);
    unsigned long start[64], length[64], ranges = 0, state = 88172645463325252;
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && ranges < 64 && fgets(line, sizeof line, maps)) {
        unsigned long end;
        if (strstr(line, "levada-pool") && sscanf(line, "%lx-%lx", &start[ranges], &end) == 2) {
            // Of a pool, the first segments.
            length[ranges] = end - start[ranges] > 1 << 20 ? 1 << 20 : end - start[ranges];
            ranges++;
        }
    }
    CHECK(ranges >= 1);
    puts("done");
    fflush(stdout);
    while (!has_input()) {
        for (int count = 0; count < 2000; count++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            unsigned long range = state % ranges, words = length[range] / 8;
            unsigned long at = (state >> 8) % (count & 1 ? words : words < 330 ? words : 330);
            unsigned long *word = (unsigned long *)start[range] + at;
            unsigned long values[] = {0, 1, ~0ul, *word + 1, *word ^ 1ul << 40, state};
            *(volatile unsigned long *)word = values[(state >> 32) % 6];
        }
        // Not so fast that no other process finds anything as it was.
        usleep(200);
    }
    close(fd);
    _exit(0);
}

// A connection that is quiet while no descriptor is left.
static void at_limit(int port) {
    char byte;
    int fd = direct(port);
    struct rlimit limit = {200, 200};
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    while (dup(0) >= 0) {
    }
    CHECK(errno == EMFILE);
    struct pollfd input = {.fd = fd, .events = POLLIN};
    CHECK(poll(&input, 1, 3000) == 0);
    CHECK(recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
    CHECK(write(fd, "x", 1) == 1 && read(fd, &byte, 1) == 1 && byte == 'x');
    puts("done");
}

// The monitor is in another network namespace.
static void namespace(int port, const char *server) {
    CHECK(unshare(CLONE_NEWNET) == 0);
    struct ifreq device = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    CHECK(ioctl(socket(AF_INET, SOCK_DGRAM, 0), SIOCSIFFLAGS, &device) == 0);
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        char number[16];
        snprintf(number, sizeof number, "%d", port);
        CHECK(dup2(open("/dev/null", O_WRONLY), 1) == 1);
        execl(server, "rules", "echo", number, "plain", NULL);
        CHECK(0);
    }
    use(port, "plain");
}

static unsigned long inode(int fd) {
    struct stat found;
    CHECK(fstat(fd, &found) == 0);
    return found.st_ino;
}

static int option(int fd, int level, int name) {
    int value = -1;
    socklen_t length = sizeof value;
    CHECK(getsockopt(fd, level, name, &value, &length) == 0);
    return value;
}

// As the kernel has it.
static int raw_option(int fd, int level, int name) {
    int value = -1;
    socklen_t length = sizeof value;
    long length_at = (long)&length;
    register long r10 __asm__("r10") = (long)&value;
    register long r8 __asm__("r8") = length_at;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"((long)SYS_getsockopt), "D"((long)fd), "S"((long)level),
                       "d"((long)name), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    CHECK(result == 0);
    return value;
}

// A new socket, which is one that a direct connection has left.
static int spare(int port) {
    int fd = direct(port);
    unsigned long left = inode(fd);
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(inode(fd) == left);
    CHECK(!(fcntl(fd, F_GETFL) & O_NONBLOCK) && !(raw(SYS_fcntl, fd, F_GETFL, 0, 0) & O_NONBLOCK));
    CHECK(option(fd, IPPROTO_TCP, TCP_NODELAY) == 0 && option(fd, SOL_SOCKET, SO_KEEPALIVE) == 0);
    CHECK(!(fcntl(fd, F_GETFD) & FD_CLOEXEC));
    return fd;
}

// A listener of this process, whose first connection is one of the kernel.
static int listener(struct sockaddr_in *address) {
    socklen_t length = sizeof *address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    *address = at(0);
    CHECK(bind(fd, (void *)address, length) == 0 && listen(fd, 8) == 0);
    CHECK(getsockname(fd, (void *)address, &length) == 0);
    return fd;
}

// What a program does with a new socket concerns no socket after it, whoever had it before.
static void spares(int port) {
    struct sockaddr_in to;
    socklen_t length = sizeof to;
    char byte = 'x';
    // Its flags, with a direct connection.
    int fd = spare(port);
    set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0 && fcntl(fd, F_GETFL) & O_NONBLOCK);
    CHECK(option(fd, IPPROTO_TCP, TCP_NODELAY) == 1);
    to = at(port);
    CHECK(connect(fd, (void *)&to, length) < 0 && errno == EINPROGRESS && !kernel_knows(fd));
    CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK && option(fd, IPPROTO_TCP, TCP_NODELAY) == 1);
    close(fd);
    // An option that the kernel has to know.
    fd = spare(port);
    set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    CHECK(raw_option(fd, SOL_SOCKET, SO_KEEPALIVE) == 1);
    close(fd);
    // A connection of the kernel, with the flags from before.
    fd = spare(port);
    int server = listener(&to), other = dup(fd);
    set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    CHECK(connect(fd, (void *)&to, length) < 0 && errno == EINPROGRESS);
    int accepted = accept(server, NULL, NULL);
    CHECK(accepted >= 0 && kernel_knows(fd) && kernel_knows(other) && inode(fd) == inode(other));
    CHECK(raw(SYS_fcntl, fd, F_GETFL, 0, 0) & O_NONBLOCK);
    CHECK(raw_option(fd, IPPROTO_TCP, TCP_NODELAY) == 1);
    close(fd), close(other), close(accepted), close(server);
    // A connection that the library does not see ends when it is closed.
    fd = spare(port);
    server = listener(&to);
    CHECK(raw(SYS_connect, fd, (long)&to, length, 0) == 0);
    accepted = accept(server, NULL, NULL);
    close(fd);
    CHECK(read(accepted, &byte, 1) == 0);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(!kernel_knows(fd) && getsockname(fd, (void *)&to, &length) == 0 && to.sin_port == 0);
    close(fd), close(accepted), close(server);
    // A child has the same socket.
    fd = spare(port);
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    server = listener(&to);
    int status;
    pid_t child = fork();
    if (child == 0) {
        CHECK(raw(SYS_fcntl, fd, F_GETFL, 0, 0) & O_NONBLOCK);
        CHECK(connect(fd, (void *)&to, length) == 0 || errno == EINPROGRESS);
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0 && kernel_knows(fd));
    close(fd), close(server);
    // A thread that enters another network namespace has sockets of that one.
    fd = spare(port);
    close(fd);
    if (unshare(CLONE_NEWNET) == 0) {
        fd = socket(AF_INET, SOCK_STREAM, 0);
        server = raw(SYS_socket, AF_INET, SOCK_STREAM, 0, 0);
        unsigned long cookies[2] = {0, 1};
        length = sizeof cookies[0];
        CHECK(getsockopt(fd, SOL_SOCKET, 71, &cookies[0], &length) == 0); // SO_NETNS_COOKIE
        CHECK(getsockopt(server, SOL_SOCKET, 71, &cookies[1], &length) == 0);
        CHECK(cookies[0] == cookies[1]);
    }
    puts("done");
}

int main(int argc, char **argv) {
    CHECK(argc >= 3);
    int port = atoi(argv[1]);
    if (strcmp(argv[2], "many") == 0) {
        many(port);
    } else if (strcmp(argv[2], "several") == 0) {
        several(port);
    } else if (strcmp(argv[2], "options") == 0) {
        options(port);
    } else if (strcmp(argv[2], "spares") == 0) {
        spares(port);
    } else if (strcmp(argv[2], "read") == 0 || strcmp(argv[2], "unread") == 0) {
        killed(port, argv[2][0] == 'r');
    } else if (strcmp(argv[2], "nested") == 0) {
        nested(port);
    } else if (strcmp(argv[2], "children") == 0 || strcmp(argv[2], "orphans") == 0) {
        children(port, argv[2][0] == 'o');
    } else if (strcmp(argv[2], "limit") == 0) {
        at_limit(port);
    } else if (strcmp(argv[2], "exec") == 0) {
        become(port);
    } else if (strcmp(argv[2], "used") == 0) {
        used(port);
    } else if (strcmp(argv[2], "attack") == 0) {
        attack(port);
    } else {
        CHECK(argc == 4 && strcmp(argv[2], "namespace") == 0);
        namespace(port, argv[3]);
    }
    return 0;
}
