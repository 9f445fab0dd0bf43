// dup2(2) onto each number that the program does not have, and low limits of descriptors.
#include "probe.h"
#include <sys/resource.h>

static int count_of_files(void) {
    int count = 0, fds[64];
    while (count < 64 && (fds[count] = open("/dev/null", O_RDONLY)) >= 0) count++;
    for (int at = 0; at < count; at++) close(fds[at]);
    return count;
}

static void set_limit(rlim_t number) {
    struct rlimit limit = {number, number};
    if (setrlimit(RLIMIT_NOFILE, &limit)) fail("setrlimit");
}

int main(void) {
    start_server();
    int fd = connected_by_ring();
    char name[] = "/tmp/levada-probe-XXXXXX";
    int file = mkstemp(name);
    unlink(name);
    for (int to = 0; to < 1200; to++) {
        if (to == fd || to == file || to <= 2) continue;
        if (dup2(file, to) != to) printf("dup2 to %d: %s\n", to, strerror(errno));
        if (to % 50 == 0 || to > 940) printf("%d: %d\n", to, exchange(fd, 3));
    }
    struct pollfd waiting = {fd, POLLIN, 0};
    if (write(fd, "water", 5) != 5 || poll(&waiting, 1, 10000) != 1) printf("no answer\n");
    char bytes[8];
    printf("received %zd\n", read(fd, bytes, sizeof bytes));
    printf("bytes in the file: %ld\n", (long)lseek(file, 0, SEEK_END));
    for (int to = 3; to < 1200; to++)
        if (to != fd && to != file) close(to);

    int other = connected_by_ring();
    printf("on the old connection %d, on a new one %d\n", exchange(fd, 3), exchange(other, 3));
    set_limit(16);
    printf("files under a limit of 16: %d\n", count_of_files());
    printf("on the old connection %d, on a new one %d\n", exchange(fd, 3), exchange(other, 3));
    int late = connected();
    printf("on a late one %d\n", exchange(late, EXCHANGES));
    printf("files: %d\n", count_of_files());
    stop_server();
    return 0;
}
