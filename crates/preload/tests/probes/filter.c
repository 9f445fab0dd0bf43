// A filter that ends the program for each system call that it does not make itself: `filter WAIT`.
#include "probe.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/select.h>
#include <sys/syscall.h>

static int connection, epoll, by_syscall;

// A system call that the filter forbids ends the program.
static void note(int number, siginfo_t *information, void *context) {
    (void)number, (void)context;
    char text[] = "forbidden: 000\n";
    for (int at = 13, call = information->si_syscall; at > 10; at--, call /= 10)
        text[at] = '0' + call % 10;
    if (write(2, text, sizeof text - 1) < 0) _exit(7);
    _exit(6);
}

static void filter(void) {
    struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO};
    if (sigaction(SIGSYS, &action, NULL)) fail("sigaction");
    static const int allowed[] = {SYS_read, SYS_write, SYS_close, SYS_poll, SYS_epoll_wait,
                                  SYS_select, SYS_pselect6, SYS_exit_group};
    enum { COUNT = sizeof allowed / sizeof *allowed };
    struct sock_filter steps[COUNT + 3] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    for (int at = 0; at < COUNT; at++)
        steps[at + 1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[at],
                                                     COUNT - at, 0);
    steps[COUNT + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
    steps[COUNT + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {COUNT + 3, steps};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) fail("no_new_privs");
    if (by_syscall ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)
                   : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        fail("seccomp");
}

static void say(const char *text) {
    if (write(1, text, strlen(text)) < 0) _exit(3);
}

// Waits until the connection is readable, in the way that the argument names.
static void wait_for_bytes(const char *way) {
    if (!strcmp(way, "poll")) {
        struct pollfd waiting = {connection, POLLIN, 0};
        if (poll(&waiting, 1, 20000) != 1 || !(waiting.revents & POLLIN)) say("not readable\n");
    } else if (!strcmp(way, "select")) {
        fd_set set;
        struct timeval time = {20, 0};
        FD_ZERO(&set);
        FD_SET(connection, &set);
        if (select(connection + 1, &set, NULL, NULL, &time) != 1) say("not readable\n");
    } else if (strcmp(way, "none")) {
        struct epoll_event event = {0};
        if (epoll_wait(epoll, &event, 1, 20000) != 1 || event.data.u64 != 7) say("no event\n");
    }
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    by_syscall = !strcmp(arguments[2], "syscall");
    start_server();
    connection = connected_by_ring();
    epoll = epoll_create1(0);
    struct epoll_event event = {EPOLLIN, {.u64 = 7}};
    if (!strcmp(arguments[1], "edge")) event.events |= EPOLLET;
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, connection, &event)) fail("epoll_ctl");
    char bytes[4096];
    // Unread bytes are in the ring when the filter is set up.
    if (write(connection, "unread ", 7) != 7 || recv(connection, bytes, 1, MSG_PEEK) != 1) fail("write");
    filter();
    size_t got = 0;
    for (int round = 0; round < 200; round++) {
        if (write(connection, "water, ", 7) != 7) return 3;
        while (got < 7) {
            wait_for_bytes(arguments[1]);
            // An edge is reported once: all of it is read.
            size_t room = round == 0 && !(event.events & EPOLLET) ? 3 : sizeof bytes - got;
            ssize_t length = read(connection, bytes + got, room);
            if (length <= 0) return 4;
            got += length;
        }
        if (round % 50 == 0) {
            bytes[got] = '\n';
            if (write(1, bytes, 7) != 7) return 5;
        }
        // The rest belongs to the next rounds.
        memmove(bytes, bytes + 7, got -= 7);
    }
    close(connection);
    say("\ndone\n");
    _exit(0);
}
