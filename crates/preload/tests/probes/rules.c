// What a server and a client may do with connections that the kernel does not know.
//
//   rules echo PORT WAY         serves for ever; says f or p (with the library or not), and echoes
//   rules client PORT WAY       prints a line for each connection, and ends after a line of input
//
// WAY of a server: plain, reuseport, fastopen, forked, inherited, passed, full, threads, epoll, options, silent,
//   workers, silent-workers, prefork
// WAY of a client: plain, bound, timeout, signals, limits, descriptors

#include "rules.h"

static void serve_one_by_one(int listener) {
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        CHECK(fd >= 0);
        echo(fd);
        close(fd);
    }
}

// A process that serves with the listener that it is given, and says c.
static int partner(void) {
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int listener = passed(ends[1]);
        kind = 'c';
        serve_one_by_one(listener);
    }
    return ends[0];
}

// Accepts until no descriptor is left, prints how many, and closes all.
static void fill(int listener) {
    int all[256], count = 0, fd;
    struct rlimit limit = {200, 200};
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    while ((fd = accept(listener, NULL, NULL)) >= 0) {
        CHECK(count < 200);
        all[count++] = fd;
    }
    CHECK(errno == EMFILE);
    // The library has none that it could give.
    int protocol, others = 0;
    socklen_t length = sizeof protocol;
    for (fd = 0; fd < 200; fd++) {
        int is_known = fd == listener;
        for (int at = 0; at < count; at++) {
            is_known |= all[at] == fd;
        }
        int is_tcp = getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) == 0;
        others += is_tcp && protocol == IPPROTO_TCP && !is_known;
    }
    CHECK(others == 0);
    printf("%d\n", count);
    fflush(stdout);
    close(all[--count]);
    CHECK((fd = accept(listener, NULL, NULL)) >= 0);
    all[count++] = fd;
    while (count > 0) {
        close(all[--count]);
    }
}

static int epoll = -1;

// Serves the first connection that it gets, until that ends.
static void *accept_one(void *argument) {
    int listener = (int)(intptr_t)argument, fd;
    do {
        struct epoll_event event;
        CHECK(epoll < 0 || epoll_wait(epoll, &event, 1, -1) == 1);
        fd = accept(listener, NULL, NULL);
    } while (fd < 0 && errno == EAGAIN);
    CHECK(fd >= 0);
    return echo_and_close((void *)(intptr_t)fd);
}

// Threads that wait before a queue exists: in accept or, if `waits`, in epoll.
static void serve_by_threads(int listener, int waits) {
    pthread_t threads[4];
    if (waits) {
        struct epoll_event event = {.events = EPOLLIN};
        CHECK((epoll = epoll_create1(0)) >= 0);
        CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event) == 0);
        CHECK(fcntl(listener, F_SETFL, O_NONBLOCK) == 0);
    }
    for (int at = 0; at < 4; at++) {
        CHECK(pthread_create(&threads[at], NULL, accept_one, (void *)(intptr_t)listener) == 0);
    }
    for (int at = 0; at < 4; at++) {
        pthread_join(threads[at], NULL);
    }
    exit(0);
}

static int option(int fd, int name) {
    int value;
    socklen_t length = sizeof value;
    CHECK(getsockopt(fd, SOL_SOCKET, name, &value, &length) == 0);
    return value;
}

// The options of an accepted connection, set over a duplicate or in a child, are those of no other.
static void set_options(int one, int other) {
    char byte;
    int twin = dup(other), status;
    set(other, SOL_SOCKET, SO_KEEPALIVE, 1);
    CHECK(option(twin, SO_KEEPALIVE) == 1 && option(one, SO_KEEPALIVE) == 0);
    struct timeval time = {0, 100000};
    CHECK(setsockopt(twin, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0);
    CHECK(read(other, &byte, 1) < 0 && errno == EAGAIN);
    pid_t child = fork();
    if (child == 0) {
        set(one, SOL_SOCKET, SO_KEEPALIVE, 1);
        CHECK(option(one, SO_KEEPALIVE) == 1 && write(one, "o", 1) == 1);
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(write(twin, "o", 1) == 1);
    close(twin);
}

// Connections of `edges PORT options`.
static void serve_options(int listener) {
    for (int held = -1;;) {
        int fd = accept(listener, NULL, NULL);
        CHECK(fd >= 0 && write(fd, &kind, 1) == 1);
        if (kernel_knows(fd)) {
            close(fd);
        } else if (held < 0) {
            held = fd;
        } else {
            set_options(held, fd);
        }
    }
}

// Serves direct connections in a child for each, whose number is printed.
static void serve_by_workers(int listener, int echoes) {
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        CHECK(fd >= 0);
        pid_t child = 0;
        if (!kernel_knows(fd) && (child = fork()) == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (echoes) {
                echo(fd);
            } else {
                CHECK(write(fd, &kind, 1) == 1);
                pause();
            }
            exit(0);
        }
        CHECK(child != 0 || write(fd, &kind, 1) == 1);
        close(fd);
        if (child > 0) {
            printf("%d\n", child);
            fflush(stdout);
        }
    }
}

// Two processes that accept from one listener, and say a and b. Their numbers are printed.
static void serve_by_forks(int listener) {
    for (kind = 'a'; kind <= 'b'; kind++) {
        pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            serve_one_by_one(listener);
        }
        CHECK(child > 0);
        printf("%d\n", child);
        fflush(stdout);
    }
    for (;;) {
        pause();
    }
}

static void serve(int port, const char *way) {
    int to = strcmp(way, "passed") == 0 ? partner() : -1;
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
    if (strcmp(way, "threads") == 0 || strcmp(way, "epoll") == 0) {
        serve_by_threads(listener, way[0] == 'e');
    }
    if (strcmp(way, "options") == 0) {
        serve_options(listener);
    }
    if (strcmp(way, "prefork") == 0) {
        serve_by_forks(listener);
    }
    if (strstr(way, "workers")) {
        serve_by_workers(listener, way[0] == 'w');
    }
    if (strcmp(way, "forked") == 0 && fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            pause();
        }
    }
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        CHECK(fd >= 0);
        if (to >= 0) {
            CHECK(pass(to, listener) == 1);
            close(to);
            to = -1;
        }
        if (strcmp(way, "full") == 0) {
            way = "plain";
            echo(fd);
            close(fd);
            fill(listener);
            continue;
        }
        if (strcmp(way, "silent") == 0) {
            CHECK(write(fd, &kind, 1) == 1);
            continue;
        }
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

// The answers of getsockopt(2) that tell nothing of a connection by TCP.
static void compare(int one, int kernel) {
    const int names[] = {SO_PEERCRED, SO_TYPE, SO_DOMAIN, SO_PROTOCOL, SO_ACCEPTCONN, SO_ERROR};
    for (unsigned at = 0; at < sizeof names / sizeof *names; at++) {
        char found[2][64] = {{0}};
        socklen_t length[2] = {64, 64};
        CHECK(getsockopt(one, SOL_SOCKET, names[at], found[0], &length[0]) == 0);
        CHECK(getsockopt(kernel, SOL_SOCKET, names[at], found[1], &length[1]) == 0);
        CHECK(length[0] == length[1] && memcmp(found[0], found[1], length[0]) == 0);
    }
}

// What bypasses the library finds a socket that is not connected; what has no way back fails.
static void limits(int port) {
    int one = direct(port), other = direct(port);
    char buffer[16];
    CHECK(raw(SYS_recvfrom, one, (long)buffer, sizeof buffer, MSG_DONTWAIT) == -ENOTCONN);
    CHECK(raw(SYS_sendto, one, (long)buffer, sizeof buffer, MSG_NOSIGNAL) == -EPIPE);
    int kernel = connected(port, "bound");
    CHECK(kernel >= 0 && kernel_knows(kernel));
    compare(one, kernel);
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    CHECK(pass(ends[0], one) < 0 && errno == EOPNOTSUPP);
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

static void ignore(int signal) {
    (void)signal;
}

// Signals as fast as they are handled.
static void interrupt(void) {
    struct sigaction action = {.sa_handler = ignore, .sa_flags = SA_RESTART};
    struct itimerval time = {{0, 200}, {0, 200}};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &time, NULL) == 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    int port = atoi(argv[2]);
    kind = getenv("LD_PRELOAD") ? 'f' : 'p';
    if (strcmp(argv[1], "echo") == 0) {
        serve(port, argv[3]);
    } else if (strcmp(argv[1], "listening") == 0) {
        serve_one_by_one(port);
    } else if (strcmp(argv[3], "limits") == 0) {
        limits(port);
    } else if (strcmp(argv[3], "descriptors") == 0) {
        descriptors(port);
    } else {
        if (strcmp(argv[3], "signals") == 0) {
            interrupt();
        }
        use(port, argv[3]);
    }
    return 0;
}
