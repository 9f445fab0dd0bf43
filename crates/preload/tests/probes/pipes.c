// splice(2) out of a connection, into pipes of every fill and mode.
#include "probe.h"

enum { PAGE = 4096, CAPACITY = 65536 };

static void fill(int pipe, int bytes) {
    static char zeros[CAPACITY];
    if (bytes && write(pipe, zeros, bytes) != bytes) fail("fill");
}

int main(void) {
    start_server();
    int fd = connected_by_ring();
    static char bytes[8000], read_back[CAPACITY];
    for (int at = 0; at < (int)sizeof bytes; at++) bytes[at] = at % 251;
    for (int pages = 0; pages <= 16; pages += pages < 13 ? 13 : 1)
        for (int mode = 0; mode < 4; mode++) {
            int ends[2], is_nonblocking = mode & 1, flags = mode & 2 ? SPLICE_F_NONBLOCK : 0;
            // What would wait for a reader is left out.
            if (pages > 0 && !is_nonblocking && !flags) continue;
            if (pipe2(ends, is_nonblocking ? O_NONBLOCK : 0)) fail("pipe");
            fill(ends[1], pages * PAGE);
            if (write(fd, bytes, sizeof bytes) != sizeof bytes) fail("write");
            struct pollfd waiting = {fd, POLLIN, 0};
            size_t received = 0;
            for (int tries = 0; received < sizeof bytes && tries < 10000; tries++) {
                if (poll(&waiting, 1, 10000) != 1) fail("poll");
                ssize_t moved = splice(fd, NULL, ends[1], NULL, sizeof bytes - received, flags);
                if (moved < 0) {
                    if (pages == 16 && !received) printf("full: %s\n", strerror(errno));
                    break;
                }
                received += moved;
            }
            // The rest is still there, in order.
            size_t in_pipe = 0;
            fcntl(ends[0], F_SETFL, O_NONBLOCK);
            for (ssize_t more; (more = read(ends[0], read_back + in_pipe, CAPACITY - in_pipe)) > 0;)
                in_pipe += more;
            int is_same = in_pipe == pages * PAGE + received &&
                !memcmp(read_back + pages * PAGE, bytes, received);
            size_t rest = received;
            while (rest < sizeof bytes) {
                ssize_t more = read(fd, read_back, sizeof bytes - rest);
                if (more <= 0) fail("rest");
                is_same &= !memcmp(read_back, bytes + rest, more);
                rest += more;
            }
            printf("%d pages, mode %d: %d\n", pages, mode, is_same);
            close(ends[0]);
            close(ends[1]);
        }
    stop_server();
    return 0;
}
