// libc's own reads and writes on a connection: dprintf, and connections as standard input and output.
#include "probe.h"
#include <stdarg.h>

static void vformat(int fd, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    printf("vdprintf %d\n", vdprintf(fd, format, arguments));
    va_end(arguments);
}

static void receive(int fd, size_t length) {
    char bytes[256] = {0};
    size_t got = 0;
    while (got < length) {
        ssize_t more = read(fd, bytes + got, length - got);
        if (more <= 0) fail("read");
        got += more;
    }
    printf("received: %s", bytes);
}

// The body must not overtake the header.
static void headers(void) {
    int fd = connected_by_ring();
    for (int round = 0; round < 3; round++) {
        int length = dprintf(fd, "%s/%d.%d %.3f %.2f %Lf %c %ld\n", "HTTP", 1, round, 1.5, 2.25,
                             (long double)3, 'x', 1234567890123);
        length += write(fd, "body one\n", 9);
        vformat(fd, "%s %.1f %d\n", "header", 0.5 + round, 7);
        length += write(fd, "body two\n", 9);
        printf("dprintf and write: %d\n", length);
        receive(fd, length + 13);
    }
    close(fd);
}

static void standard_streams(void) {
    int saved[2] = {dup(0), dup(1)}, fd = connected_by_ring();
    if (dup2(fd, 0) != 0 || dup2(fd, 1) != 1) fail("dup2");
    char line[64];
    for (int round = 0; round < 3; round++) {
        printf("question %d\n", round);
        fflush(stdout);
        if (!fgets(line, sizeof line, stdin)) fail("fgets");
        dprintf(saved[1], "answer: %s", line);
    }
    // The connection is still one of the program's.
    if (write(fd, "direct\n", 7) != 7 || !fgets(line, sizeof line, stdin)) fail("direct");
    dprintf(saved[1], "answer: %s", line);
    if (dup2(saved[0], 0) != 0 || dup2(saved[1], 1) != 1) fail("dup2");
    close(fd);
}

// A socket gets the number of standard input at once, as in a server that has closed it.
static void lowest_number(void) {
    int saved = dup(0);
    close(0);
    int fd = connected();
    char line[64];
    for (int round = 0; round < EXCHANGES; round++) {
        if (write(fd, "round\n", 6) != 6 || !fgets(line, sizeof line, stdin)) fail("round");
    }
    printf("number %d: %s", fd, line);
    close(0);
    if (dup2(saved, 0) != 0) fail("dup2");
    int other = connected_by_ring();
    close(0);
    int duplicate = dup(other);
    if (write(other, "last\n", 5) != 5 || read(duplicate, line, 5) != 5) fail("last");
    printf("duplicate %d: %.5s", duplicate, line);
    close(other);
}

int main(void) {
    start_server();
    headers();
    standard_streams();
    lowest_number();
    stop_server();
    return 0;
}
