// Exchanges messages with a server on the same processor, and counts the calls that waits make.
// Linked with -rdynamic: the library calls the functions of this program instead of libc's.
#include "../probes/probe.h"
#include <sched.h>
#include <sys/syscall.h>

static volatile int yields, policies;
static int lies;

int sched_yield(void) {
    yields++;
    return syscall(SYS_sched_yield);
}

int sched_getscheduler(pid_t thread) {
    policies++;
    return syscall(SYS_sched_getscheduler, thread);
}

int sched_getcpu(void) {
    static _Thread_local unsigned calls;
    unsigned processor = 0;
    syscall(SYS_getcpu, &processor, NULL, NULL);
    if (!lies) return processor;
    // An error, the right one, others, and numbers that no system has.
    int answers[] = {-1, processor, processor + 1, 0, INT32_MAX, INT32_MIN, processor};
    return answers[calls++ % (sizeof answers / sizeof *answers)];
}

static void share_one_processor(void) {
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all)) fail("affinity");
    int processor = 0;
    while (!CPU_ISSET(processor, &all)) processor++;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    if (sched_setaffinity(0, sizeof one, &one)) fail("pin");
}

static void expect(int is_right, const char *what) {
    if (is_right) return;
    dprintf(2, "%s: %d yields, %d policies\n", what, yields, policies);
    stop_server();
    _exit(1);
}

int main(int count, char **arguments) {
    const char *mode = count > 1 ? arguments[1] : "";
    lies = !strcmp(mode, "lies");
    share_one_processor();
    start_server();
    if (!strcmp(mode, "fifo")) {
        struct sched_param first = {.sched_priority = 1};
        if (sched_setscheduler(0, SCHED_FIFO, &first)) {
            dprintf(2, "skipped: no right to use SCHED_FIFO\n");
            stop_server();
            return 0;
        }
    }
    int fd = connected_by_ring();
    if (!exchange(fd, 2000)) fail("exchange");
    yields = policies = 0;
    if (!strcmp(mode, "yields")) {
        // Other programs may keep the processor for some time.
        while (!policies || !yields)
            if (!exchange(fd, 1)) fail("exchange");
    }
    if (!exchange(fd, 2000)) fail("exchange");
    if (!strcmp(mode, "fifo")) expect(!yields, "a real-time thread yields");
    if (!strcmp(mode, "asleep")) expect(!yields && !policies, "a wait does not sleep at once");
    stop_server();
    return 0;
}
